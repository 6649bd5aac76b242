"""How a campaign goes, and how it went: a line on the terminal, a table, and a file for the documentation."""

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
"""What counts as a failure, and the name of its column.

``crash``: the process died of a signal, or ended without an exception. ``hang``: the case did not end within its limit,
also when it ran alone. ``memory``: it needed more than its limit. ``error``: an exception that is no sentence for the
user. ``nan``: NaN or infinity in a result, or a warning of NumPy's about one. ``contract``: a result that is not what
the documentation promises.
"""


class Failure(NamedTuple):
    """What a case did wrong.

    Attributes
    ----------
    kind : str
        One of :data:`KINDS`.
    what : str
        A sentence.
    where : str
        Tells different bugs apart.
    lines : str
        The statements that lead there, where they are known.
    """

    kind: str
    what: str
    where: str = ""
    lines: str = ""


@dataclass
class Tally:
    """How a campaign went.

    Attributes
    ----------
    target, seed : str, int
        What was fuzzed, and from which seed.
    cases, begun : int
        Cases that were run, and those of batches that have only begun.
    taken : int
        Cases that the package took: it fitted, or read the file. It has refused the others.
    seconds : float
        How long it took.
    counts : dict of str to int
        Failures by kind.
    found : dict
        Numbers of the cases that failed, by kind and place.
    slow : list of int
        Cases that ran past their limit once, and within it when they ran alone.
    interrupted : bool
        Whether somebody stopped it.
    """

    target: str
    seed: int
    cases: int = 0
    begun: int = 0
    taken: int = 0
    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    found: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    slow: list[int] = field(default_factory=list)
    interrupted: bool = False

    def add(self, number: int, failure: Failure) -> bool:
        """Count a failure. → whether it is the first of its kind at its place"""
        self.counts[failure.kind] += 1
        numbers = self.found.setdefault((failure.kind, failure.where), [])
        numbers.append(number)
        return len(numbers) == 1

    @property
    def failures(self) -> int:
        """Failures of all kinds."""
        return sum(self.counts.values())

    @property
    def rate(self) -> float:
        """Cases a second."""
        return (self.cases + self.begun) / max(self.seconds, 1e-9)

    def record(self) -> dict[str, Any]:
        """All of it, for JSON."""
        signatures = [
            {"kind": kind, "where": where, "cases": numbers[:20], "number": len(numbers)}
            for (kind, where), numbers in self.found.items()
        ]
        plain = {
            name: getattr(self, name) for name in ("target", "seed", "cases", "taken", "counts", "slow", "interrupted")
        }
        return {**plain, "seconds": round(self.seconds, 1), "found": signatures}


class Progress:
    """A line on standard error that is written over, or a line now and then where that is no terminal."""

    def __init__(self, expected: int | None, until: float) -> None:
        self.expected, self.until = expected, until
        self.terminal = sys.stderr.isatty()
        self.next = 0.0

    def __call__(self, tally: Tally) -> None:
        """Show how far it is."""
        now = time.monotonic()
        if now < self.next:
            return
        self.next = now + (0.5 if self.terminal else 30.0)
        of = f" of {self.expected:,}" if self.expected else ""
        left = "" if self.until == float("inf") else f", {max(self.until - now, 0) / 60:.1f} minutes left"
        failures = ", ".join(f"{number} {KINDS[kind]}" for kind, number in tally.counts.items() if number)
        done = f"{tally.cases + tally.begun:,}{of} cases, {tally.rate:.0f}/s{left}"
        line = f"{tally.target}: {done}; {failures or 'no failures'}"
        print(f"\r\x1b[K{line}" if self.terminal else f"{line}\n", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Make room for other lines."""
        if self.terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def table(tallies: list[Tally]) -> str:
    """The figures in Markdown."""
    head = ["", "cases", "of them taken", "seed", "cases/s", *KINDS.values()]
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
    """Each kind of failure in a line, the most frequent first."""
    rows = sorted(tally.found.items(), key=lambda item: -len(item[1]))
    return "\n".join(
        f"{len(numbers):6} {kind:8} {where}  (cases {', '.join(map(str, numbers[:5]))}{', …' * (len(numbers) > 5)})"
        for (kind, where), numbers in rows
    )


def write(path: Path, tallies: list[Tally], command: str) -> None:
    """Write the figures as JSON, or as Markdown where the name ends with .md."""
    if path.suffix == ".md":
        path.write_text(f"`{command}`\n\n{table(tallies)}\n", encoding="utf-8")
        return
    machine = {"python": platform.python_version(), "system": platform.platform(), "cores": os.cpu_count()}
    content = {"command": command, "machine": machine, "targets": [tally.record() for tally in tallies]}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
