"""Progress and results of a campaign: a line on the terminal, a table, and a file."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

KINDS = {
    "crash": "crashes",
    "hang": "hangs",
    "memory": "memory",
    "error": "wrong errors",
    "nan": "silent NaN",
    "contract": "contract",
}
"""The kinds of failures, and the titles of their columns.

``crash``: a signal killed the process, or it exited without an exception. ``hang``: the case exceeded its time limit,
even when it ran alone. ``memory``: it exceeded its memory limit. ``error``: an exception without a clear message for
the user. ``nan``: NaN or infinity in a result, or a warning of NumPy about one. ``contract``: a result that violates
the documentation.
"""


class Failure(NamedTuple):
    """A failure of a case.

    Attributes
    ----------
    kind : str
        One of :data:`KINDS`.
    what : str
        Description.
    where : str
        Location; failures with different locations are different bugs.
    lines : str
        The statements that reproduce the failure, if they are known.
    """

    kind: str
    what: str
    where: str = ""
    lines: str = ""


@dataclass
class Tally:
    """The results of a campaign.

    Attributes
    ----------
    target, seed : str, int
        Name of the target, and the seed.
    cases, begun : int
        Number of cases in finished batches, and in batches that are still running.
    taken : int
        Number of cases that the package accepted: it fitted the data or read the file. It refused the others.
    seconds : float
        Duration.
    counts : dict of str to int
        Number of failures by kind.
    failed_cases : dict
        Numbers of the failed cases, by kind and location.
    slow : list of int
        Cases that exceeded their time limit once, but not when they ran alone.
    interrupted : bool
        Whether the user stopped the campaign.
    """

    target: str
    seed: int
    cases: int = 0
    begun: int = 0
    taken: int = 0
    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    failed_cases: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    slow: list[int] = field(default_factory=list)
    interrupted: bool = False

    def add(self, number: int, failure: Failure) -> bool:
        """Count a failure. → whether it is the first of its kind at its location"""
        self.counts[failure.kind] += 1
        numbers = self.failed_cases.setdefault((failure.kind, failure.where), [])
        numbers.append(number)
        return len(numbers) == 1

    @property
    def failures(self) -> int:
        """Number of failures of all kinds."""
        return sum(self.counts.values())

    @property
    def rate(self) -> float:
        """Cases per second."""
        return (self.cases + self.begun) / max(self.seconds, 1e-9)

    def record(self) -> dict[str, Any]:
        """Return the results for JSON."""
        signatures = [
            {"kind": kind, "where": where, "cases": numbers[:20], "number": len(numbers)}
            for (kind, where), numbers in self.failed_cases.items()
        ]
        plain = {
            name: getattr(self, name) for name in ("target", "seed", "cases", "taken", "counts", "slow", "interrupted")
        }
        return {**plain, "seconds": round(self.seconds, 1), "found": signatures}


class Progress:
    """A progress line on standard error; without a terminal, a new line every 30 seconds."""

    def __init__(self, expected: int | None, until: float) -> None:
        self.expected, self.until = expected, until
        self.terminal = sys.stderr.isatty()
        self.next = 0.0

    def __call__(self, tally: Tally) -> None:
        """Show the progress."""
        now = time.monotonic()
        if now < self.next:
            return
        self.next = now + (0.5 if self.terminal else 30.0)
        total = f" of {self.expected:,}" if self.expected else ""
        remaining = "" if self.until == float("inf") else f", {max(self.until - now, 0) / 60:.1f} minutes left"
        failures = ", ".join(f"{number} {KINDS[kind]}" for kind, number in tally.counts.items() if number)
        done = f"{tally.cases + tally.begun:,}{total} cases, {tally.rate:.0f}/s{remaining}"
        line = f"{tally.target}: {done}; {failures or 'no failures'}"
        print(f"\r\x1b[K{line}" if self.terminal else f"{line}\n", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Clear the line before other output."""
        if self.terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def table(tallies: list[Tally]) -> str:
    """Return the statistics as a Markdown table."""
    head = ["", "cases", "accepted", "seed", "cases/s", *KINDS.values()]
    rows = [
        [tally.target, f"{tally.cases:,}", f"{tally.taken:,}", str(tally.seed), f"{tally.rate:.0f}"]
        + [str(number) for number in tally.counts.values()]
        for tally in tallies
    ]
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = [
        "| " + " | ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in [head, *rows]
    ]
    rule = "|" + "|".join("-" * (width + 1) + ":" for width in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def signatures(tally: Tally) -> str:
    """Return one line for each different failure, the most frequent first."""
    rows = sorted(tally.failed_cases.items(), key=lambda item: -len(item[1]))
    return "\n".join(
        f"{len(numbers):6} {kind:8} {where}  (cases {', '.join(map(str, numbers[:5]))}{', …' * (len(numbers) > 5)})"
        for (kind, where), numbers in rows
    )


def write(path: Path, tallies: list[Tally], command: str) -> None:
    """Write the statistics as JSON, or as Markdown if the name ends with .md."""
    if path.suffix == ".md":
        path.write_text(f"`{command}`\n\n{table(tallies)}\n", encoding="utf-8")
        return
    machine = {"python": platform.python_version(), "system": platform.platform(), "cores": os.cpu_count()}
    content = {"command": command, "machine": machine, "targets": [tally.record() for tally in tallies]}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
