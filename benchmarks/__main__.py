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
    (arguments.out / "performance.md").write_text(to_markdown(machine, rows))
    plot(rows, arguments.out / "performance.png")
    print(f"Written to {arguments.out}")


def describe_machine() -> str:
    """Describe the machine and the versions in one line."""
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.processor(),
    )
    cores = available_cores()
    return f"{model}, {cores} cores; Python {platform.python_version()}, scikit-learn {sklearn.__version__}"


def to_markdown(machine: str, rows: list[Row]) -> str:
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
    """Plot the ratios as bars, with their targets."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    chosen = [row for row in rows if row.target.startswith("≥")]
    if not chosen:
        return
    figure, ax = plt.subplots(figsize=(9, 0.32 * len(chosen) + 1), layout="constrained")
    positions: Any = range(len(chosen))[::-1]
    ax.barh(positions, [row.value for row in chosen], color=["#2a6f97" if row.met else "#c1121f" for row in chosen])
    for position, row in zip(positions, chosen, strict=True):
        target = float(row.target.removeprefix("≥ "))
        ax.plot([target, target], [position - 0.4, position + 0.4], color="#1b263b", lw=2)
        ax.text(row.value, position, f" {row.value:.1f}", va="center", fontsize=8)
    ax.set_yticks(positions, [row.what for row in chosen], fontsize=8)
    ax.set_xscale("log")
    ax.set_xlabel("speed ratio (bars) and target (black)", fontsize=9)
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    figure.savefig(path, dpi=130)
    plt.close(figure)


if __name__ == "__main__":
    main()
