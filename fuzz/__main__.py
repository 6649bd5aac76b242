"""Fuzzes onmf: ``python -m fuzz [core|files] [--minutes M | --fits N --files N] [--seed S] [--case N]``."""

from __future__ import annotations

import argparse
import itertools
import os
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from .acts import ACTS
from .core import Core
from .files import Files
from .report import Failure, Progress, Tally, signatures, table, write
from .reproduce import shrink
from .runner import Target, campaign

BATCH = 500
"""Number of cases per child process: enough that its start-up time does not matter."""

FAILURES = Path("fuzz-failures")
"""Folder for files that reproduce failures."""


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the options."""
    parser = argparse.ArgumentParser(
        prog="python -m fuzz", description="Run onmf on ugly data and damaged files, each in a process with limits."
    )
    parser.add_argument("targets", nargs="*", choices=["core", "files", []], help="what to fuzz; by default both")
    parser.add_argument("--minutes", type=float, help="total time in minutes, shared by the targets; 10 by default")
    parser.add_argument("--fits", type=int, help="number of core cases to run, instead of a time")
    parser.add_argument("--files", type=int, help="number of files cases to run, instead of a time")
    parser.add_argument("--seed", type=int, default=1, help="seed of the cases")
    parser.add_argument("--act", choices=list(ACTS), help="run only this kind of core case")
    parser.add_argument("--case", metavar="N[:M]", help="run only case N, or cases N to M, of one target")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="number of parallel processes")
    parser.add_argument("--out", type=Path, help="write the statistics to this file, .json or .md")
    options = parser.parse_args(arguments)
    counts = {"core": options.fits, "files": options.files}
    options.targets = options.targets or [name for name, n in counts.items() if n] or list(counts)
    if options.case and len(options.targets) > 1:
        parser.error("--case needs a target: core or files")
    options.counts = {name: counts[name] for name in options.targets}
    if options.minutes is None and not any(options.counts.values()):
        options.minutes = 10.0
    return options


def main() -> int:
    """Run the campaigns, and print the failures. → 1 if there was any failure"""
    options = parse()
    if sys.platform != "linux":
        sys.exit("The fuzzer needs the process limits of Linux: run it on Linux.")
    targets: dict[str, Target] = {"core": Core(options.act), "files": Files()}
    tallies = [fuzz(targets[name], options) for name in options.targets]
    for tally in tallies:
        if tally.failures:
            print(f"\n{tally.target}, by kind and location:\n{signatures(tally)}")
        if tally.slow:
            print(f"\n{tally.target}: cases {tally.slow} exceeded their time limit once, but not when run alone.")
    print(f"\n{table(tallies)}")
    if options.out:
        write(options.out, tallies, shlex.join(["python", "-m", "fuzz", *sys.argv[1:]]))
    return int(any(tally.failures or tally.interrupted for tally in tallies))


def fuzz(target: Target, options: argparse.Namespace) -> Tally:
    """Fuzz one target."""
    print(f"{target.name}: warming up", file=sys.stderr, flush=True)
    target.warm_up()
    count = options.counts[target.name]
    until = float("inf")
    if options.minutes is not None and not options.case:
        until = time.monotonic() + 60 * options.minutes / len(options.targets)
    progress = Progress(count, until)

    def show(number: int, failure: Failure) -> None:
        progress.clear()
        case, smallest = shrink(target, target.make(options.seed, number), failure)
        text = target.reproducer(case, smallest, FAILURES / f"{target.name}-{options.seed}-{number}")
        act = ["--act", options.act] if options.act and target.name == "core" else []
        command = shlex.join(
            ["python", "-m", "fuzz", target.name, *act, "--seed", str(options.seed), "--case", str(number)]
        )
        print(f"\n# {failure.kind}: {smallest.what}\n# at {failure.where}\n# {command}\n{text}", flush=True)

    return campaign(
        target,
        options.seed,
        batches(options.case, count),
        until=until,
        workers=options.workers,
        progress=progress,
        show=show,
    )


def batches(case: str | None, count: int | None) -> Iterator[range]:
    """Yield the numbers of the cases in batches."""
    if case is not None:
        first, _, last = case.partition(":")
        return iter([range(int(first), int(last or first) + 1)])
    if count is None:
        return (range(first, first + BATCH) for first in itertools.count(0, BATCH))
    batch = max(min(BATCH, count // 4), 1)  # so that all workers get a batch
    return (range(first, min(first + batch, count)) for first in range(0, count, batch))


if __name__ == "__main__":
    sys.exit(main())
