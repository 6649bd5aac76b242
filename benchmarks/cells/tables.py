"""The tables of all sets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .contenders import CONTENDERS

NO_CELLS = ("hmp_site18",)
"""Sets of counts that are not cells, and not in the means."""


class Tables:
    """Records by set and contender, as tables in Markdown.

    Parameters
    ----------
    records : list of dict
        From :func:`.sets.measure`.
    """

    def __init__(self, records: list[dict[str, Any]]) -> None:
        self.records = records
        self.sets = list(dict.fromkeys(record["set"] for record in records))
        self.cells = [name for name in self.sets if name not in NO_CELLS]
        self.contenders = [name for name in CONTENDERS if any(record["contender"] == name for record in records)]

    def values(self, name: str, contender: str, key: str) -> list[float]:
        """Return the values of all seeds; none if the contender was not measured on the set."""
        return [record[key] for record in self.records if (record["set"], record["contender"]) == (name, contender)]

    def typical(self, name: str, contender: str, key: str) -> float:
        """Return the mean over seeds, and of times the median: a busy machine makes some of them longer."""
        found = self.values(name, contender, key)
        return float((np.median if key in ("seconds", "search") else np.mean)(found)) if found else np.nan

    def mean(self, contender: str, key: str) -> float:
        """Return the mean over the sets of cells."""
        return float(np.mean([self.typical(name, contender, key) for name in self.cells] or [np.nan]))

    def of_all_sets(self) -> Iterator[str]:
        """Yield the table of means."""
        yield from ("| | mean ARI | mean NMI | mean seconds | largest memory, GB |", "|---|---:|---:|---:|---:|")
        for contender in self.contenders:
            ari, nmi, seconds = (self.mean(contender, key) for key in ("ari", "nmi", "seconds"))
            peak = max(record["gigabytes"] for record in self.records if record["contender"] == contender)
            yield f"| {CONTENDERS[contender].title} | {ari:.3f} | {nmi:.3f} | {seconds:.2f} | {peak:.2f} |"

    def by_set(self, row: Any) -> Iterator[str]:
        """Yield a table with a row for each set; ``row`` returns its entries."""
        yield "| set | " + " | ".join(CONTENDERS[contender].title for contender in self.contenders) + " |"
        yield "|---|" + "---:|" * len(self.contenders)
        for name in self.sets:
            yield f"| {name} | " + " | ".join(row(name)) + " |"

    def scores(self, name: str, key: str) -> Iterator[str]:
        """Yield the scores of all contenders on a set."""
        best = max(round(self.typical(name, contender, key), 2) for contender in self.measured(name))
        for contender in self.contenders:
            if contender not in self.measured(name):
                yield "–"
                continue
            mean, spread = round(self.typical(name, contender, key), 2), np.std(self.values(name, contender, key))
            text = f"**{mean:.2f}**" if mean == best else f"{mean:.2f}"
            yield f"{text} ± {spread:.2f}" if CONTENDERS[contender].random else text

    def costs(self, name: str) -> Iterator[str]:
        """Yield time and memory of all contenders on a set."""
        for contender in self.contenders:
            if contender in self.measured(name):
                seconds, peak = self.typical(name, contender, "seconds"), max(self.values(name, contender, "gigabytes"))
                yield f"{seconds:.2f} s, {peak:.2f} GB"
            else:
                yield "–"

    def measured(self, name: str) -> Sequence[str]:
        """Return the contenders that were measured on a set."""
        return [contender for contender in self.contenders if self.values(name, contender, "seed")]


def to_markdown(records: list[dict[str, Any]]) -> str:
    """Return the tables of all sets."""
    tables = Tables(records)
    seeds = max(record["seed"] for record in records) + 1
    lines = [f"Means over {seeds} seeds, of times the median. Means over sets leave out {' and '.join(NO_CELLS)}.", ""]
    lines += tables.of_all_sets()
    for key, title in (("ari", "Adjusted Rand index"), ("nmi", "NMI")):
        lines += ["", f"**{title}** (± standard deviation over seeds; the best of each set is bold)", ""]
        lines += tables.by_set(lambda name, key=key: tables.scores(name, key))
    lines += ["", "**Seconds from counts to labels, and peak memory of the process**", ""]
    lines += tables.by_set(tables.costs)
    lines += ["", "Peak memory includes Python and the libraries."]
    if "leiden" in tables.contenders:
        lines[-1] += (
            " The time of Leiden is that of one run with a resolution that gives the right number of clusters. With "
            f"the search for this resolution, by bisection, the mean is {tables.mean('leiden', 'search'):.2f} s."
        )
    return "\n".join(lines) + "\n"
