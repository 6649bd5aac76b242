"""Fuzz onmf: ``python -m fuzz [core|files] [--minutes M] [--seed S] …``."""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from pathlib import Path

from .core import Core
from .files import Files
from .runner import Found, Tally, campaign


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz")
    parser.add_argument("target", choices=["core", "files"], default="core", nargs="?")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--fits", type=int)
    parser.add_argument("--case", type=int)
    parser.add_argument("--workers", type=int, default=1)
    a = parser.parse_args()
    target = {"core": Core, "files": Files}[a.target]()
    t = time.monotonic()
    target.warm_up()
    print("warm", time.monotonic() - t)
    folder = Path("fuzz-failures")

    def show(found: Found) -> None:
        print(f"\n## {found.failure.kind} {target.name} --seed {a.seed} --case {found.number}: {found.failure.what}\n   [{found.failure.where}]")
        print(target.reproducer(a.seed, found.number, found.failure, folder), flush=True)

    if a.case is not None:
        numbers, batch = iter([a.case]), 1
    else:
        batch = 200
        numbers = iter(range(0, a.fits, batch)) if a.fits else itertools.count(0, batch)
    tally = campaign(target, a.seed, numbers=numbers, until=time.monotonic() + 60 * a.minutes, workers=a.workers, batch=batch, show=show)
    print(tally.cases, tally.seconds, tally.cases / tally.seconds, tally.counts, tally.slow)
    sigs = {}
    for f in tally.found:
        sigs[f.failure.kind, f.failure.where] = sigs.get((f.failure.kind, f.failure.where), 0) + 1 + f.more
    for s, c in sorted(sigs.items(), key=lambda x: -x[1]):
        print(c, s)
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
