"""Runs the benchmark: ``python -m benchmarks [PART …] [--quick] [--repeats N] [--out DIR]``."""

from __future__ import annotations

import argparse
import json
import platform
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sklearn

from onmf.backend import available_cores

from . import measure
from .parts import PARTS, Row

METHODS = ("KMeans", "KL", "Frobenius")
PEERS = ("KMeans", "NMF", "plain SciPy")


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print, and write JSON, Markdown and a figure."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure onmf, and compare it with other packages."
    )
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="parts to measure; by default all")
    parser.add_argument(
        "--quick", action="store_true", help="use tiny data: checks that it runs; the numbers mean nothing"
    )
    parser.add_argument("--repeats", type=int, default=5, help="number of repeats; the median is reported")
    parser.add_argument("--out", type=Path, default=Path("docs/performance"), help="folder for the results")
    arguments = parser.parse_args(argv)
    # Fits do not converge, because the number of iterations is fixed.
    warnings.filterwarnings("ignore", category=UserWarning)
    warnings.filterwarnings("ignore", category=FutureWarning, module="sib")
    measure.QUICK = arguments.quick
    rows: list[Row] = []
    machine = describe_machine()
    print(machine)
    for part in arguments.parts or PARTS:
        for row in PARTS[part](arguments.quick, arguments.repeats):
            rows.append(row)
            mark = {None: "", True: "✓", False: "✗"}[row.met]
            print(f"  {row.what:80} {row.value:10.3g} {row.unit:4} {row.target:7} {mark}", flush=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    results = arguments.out / "results.json"
    if arguments.parts and results.exists():  # keep parts that were measured earlier on the same machine
        before = json.loads(results.read_text())
        measured = {row.part for row in rows}
        if before["machine"] == machine:
            rows = [*(Row(**row) for row in before["rows"] if row["part"] not in measured), *rows]
    content = {"machine": machine, "rows": [row.record() for row in rows]}
    results.write_text(json.dumps(content, indent=1, default=float) + "\n")
    write_tables(machine, rows, arguments.out)
    print(f"Written to {arguments.out}")


def describe_machine() -> str:
    """Describe the machine and the versions in one line."""
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.processor(),
    )
    cores = available_cores()
    return f"{model}, {cores} cores; Python {platform.python_version()}, scikit-learn {sklearn.__version__}"


def write_tables(machine: str, rows: list[Row], folder: Path) -> None:
    """Write the table and the figure for users (speed), and the table for developers (targets)."""
    (folder / "speed.md").write_text(to_speed(machine, rows))
    (folder / "targets.md").write_text(to_targets(machine, rows))
    plot(rows, folder / "speed.png")


def to_speed(machine: str, rows: list[Row]) -> str:
    """Return a table of the times of an iteration, one line for each data set, type and number of clusters."""
    times: dict[str, dict[str, float]] = {}
    for row in rows:
        method, _, case = row.what.partition(", ")
        if row.unit == "ms" and method in METHODS and case.count(", ") == 2:
            times.setdefault(case, {})[method] = row.value
    lines = [f"Milliseconds of an iteration, measured on {machine}. In brackets: how many times as fast as KMeans.", ""]
    lines += ["| data | type | clusters | KMeans | KL | Frobenius |", "|---|---|---:|---:|---:|---:|"]
    for case, measured in times.items():
        data, kind, clusters = case.split(", ")
        peer = measured["KMeans"]
        ours = (f"{measured[name]:.3g} ({peer / measured[name]:.1f} ×)" for name in METHODS[1:])
        lines.append(f"| {data} | {kind} | {clusters.removeprefix('r = ')} | {peer:.3g} | {' | '.join(ours)} |")
    return "\n".join([*lines, ""])


def to_targets(machine: str, rows: list[Row]) -> str:
    """Return a table of the rows that have a target, and one of the others."""
    lines = [f"Measured on {machine}.", ""]
    for title, has_target in (("Targets", True), ("Other figures", False)):
        chosen = [row for row in rows if bool(row.target) is has_target]
        if chosen:
            lines += [f"**{title}**", "", "| | measured | target | |", "|---|---:|---:|---|"]
            for row in chosen:
                mark = {None: "", True: "✓", False: "**missed**"}[row.met]
                lines.append(f"| {row.what} | {row.value:.3g} {row.unit} | {row.target} | {mark} |")
            lines.append("")
    return "\n".join(lines)


def plot(rows: list[Row], path: Path) -> None:
    """Plot how many times as fast as its peers onmf is."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    chosen = [row for row in rows if row.unit == "×" and row.what.split(" against ")[-1].startswith(PEERS)]
    if not chosen:
        return
    figure, ax = plt.subplots(figsize=(9, 0.32 * len(chosen) + 1), layout="constrained")
    positions: Any = range(len(chosen))[::-1]
    colours = ["#2a6f97" if row.value >= 1 else "#c1121f" for row in chosen]
    ax.barh(positions, [row.value - 1 for row in chosen], left=1, color=colours)
    for position, row in zip(positions, chosen, strict=True):
        ax.text(max(row.value, 1), position, f" {row.value:.1f}", va="center", fontsize=8)
    ax.set_ylim(-1, len(chosen))
    ax.axvline(1, color="#1b263b", lw=1)
    ax.set_yticks(positions, [row.what for row in chosen], fontsize=8)
    ax.set_xscale("log")
    ax.set_xlabel("times as fast; right of the line, onmf is faster", fontsize=9)
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    figure.savefig(path, dpi=130)
    plt.close(figure)


if __name__ == "__main__":
    main()
