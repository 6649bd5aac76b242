"""Results of all benchmarks: stored as JSON records, written as tables in Markdown, and drawn."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import ge, le, lt
from pathlib import Path
from typing import Any

import numpy as np

from onmf.io.files import write_whole

Record = dict[str, Any]

MISSED = {None: "", True: "✓", False: "**missed**"}
"""What a table says about a target."""


def save(path: Path, text: str) -> None:
    """Write a text file completely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, lambda file: file.write(text.encode()))


def save_json(path: Path, content: Any) -> None:
    """Write a JSON file completely or not at all."""
    save(path, json.dumps(content, indent=1, default=float) + "\n")


def publish(path: Path, lines: Iterable[str]) -> None:
    """Print lines, and write them to a file."""
    text = "\n".join(lines) + "\n"
    print(text)
    save(path, text)


class Store:
    """Records in a JSON file: the whole of it, or one part.

    Parameters
    ----------
    path : Path
        The file. What is in it is kept.
    keys : tuple of str
        What tells records apart. New records take the place of those with the same values.
    part : str, optional
        Name of the part.
    """

    def __init__(self, path: Path, keys: tuple[str, ...], part: str = "") -> None:
        self.path, self.keys, self.part = path, keys, part
        content = json.loads(path.read_text("utf-8")) if path.exists() else {}
        self.content: Record = content if part else {"": content or []}

    @property
    def records(self) -> list[Record]:
        """All records."""
        return self.content.setdefault(self.part, [])

    def key(self, record: Record) -> tuple[Any, ...]:
        """Return what tells a record from others. A record that lacks a key has None there."""
        return tuple(record.get(key) for key in self.keys)

    def __contains__(self, key: tuple[Any, ...]) -> bool:
        return any(self.key(record) == key for record in self.records)

    def add(self, *new: Record) -> None:
        """Store records, print them, and write the file."""
        print(*new, sep="\n", flush=True)
        replaced = {self.key(record) for record in new}
        first = next((i for i, record in enumerate(self.records) if self.key(record) in replaced), len(self.records))
        kept = [record for record in self.records[first:] if self.key(record) not in replaced]
        self.records[first:] = [*new, *kept]
        save_json(self.path, self.content if self.part else self.records)


def judged(value: float, target: str) -> Record:
    """Compare a value with a target such as "≥ 2.5 ×"; without a target, there is no verdict."""
    if not target:
        return {"target": "", "met": None}
    sign, bound, *_ = target.split()
    return {"target": target, "met": bool({"≥": ge, "≤": le, "<": lt}[sign](value, float(bound)))}


def measure_rows(rows: Iterable[Record], out: Path, machine: str, kept: bool) -> list[Record]:
    """Store rows in results.json, each when it is measured.

    Rows of other parts that were measured earlier on the same machine are ``kept``, or not.
    """
    store = Store(out / "results.json", ("what",), "rows")
    if not kept or store.content.get("machine") != machine:
        store.content = {"machine": machine}
    print(machine, flush=True)
    for row in rows:
        store.add(row)
    return store.records


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], align: str = "") -> list[str]:
    """Return the lines of a table; ``align`` has l or r for each column, by default the first is l and all others r."""
    align = align or "l" + "r" * (len(columns) - 1)
    header, *body = ("|" + "".join(f" {cell} |" if cell else " |" for cell in row) for row in (columns, *rows))
    return [header, "|" + "".join("---|" if side == "l" else "---:|" for side in align), *body]


def bold(text: str, yes: bool) -> str:
    """Return a text in bold print, or as it is."""
    return f"**{text}**" if yes else text


class Grid:
    """Records by set and method.

    Parameters
    ----------
    records : list of dict
        They have ``"set"`` and ``column``.
    titles : dict
        Of the methods, by their names in the records. Those without records are left out.
    sets : sequence of str, optional
        By default all, in the order of the records.
    column : str
        The key of a record's method.
    """

    def __init__(
        self, records: list[Record], titles: dict[str, str], sets: Sequence[str] | None = None, column: str = "method"
    ) -> None:
        self.cells: dict[tuple[str, str], list[Record]] = {}
        for record in records:
            self.cells.setdefault((record["set"], record[column]), []).append(record)
        names, methods = ({key[place]: None for key in self.cells} for place in (0, 1))
        self.sets = list(names if sets is None else sets)
        self.titles = {method: title for method, title in titles.items() if method in methods}

    def values(self, name: str, method: str, key: str) -> Any:
        """Return the values of all seeds, in an array."""
        return np.array([record[key] for record in self.cells.get((name, method), []) if key in record])

    def mean(self, name: str, method: str, key: str, average: Callable[..., Any] = np.mean) -> float:
        """Return the mean over seeds, or another average; NaN if there is none."""
        values = self.values(name, method, key)
        return float(average(values)) if len(values) else np.nan

    def means(self, method: str, key: str, average: Callable[..., Any] = np.mean) -> Any:
        """Return the mean over seeds of each set."""
        return np.array([self.mean(name, method, key, average) for name in self.sets])

    def by_set(self, cell: Callable[[str, str], str], **about: dict[str, str]) -> list[str]:
        """Return a table with a row for each set and a column for each method; ``about`` has columns before them."""
        first = {name: [name, *(column[name] for column in about.values())] for name in self.sets}
        rows = [[*first[name], *(cell(name, method) for method in self.titles)] for name in self.sets]
        return table(["set", *about, *self.titles.values()], rows)


def section(title: str, lines: Iterable[str]) -> list[str]:
    """Return lines under a title."""
    return ["", f"**{title}**", "", *lines]


def name_rows(ax: Any, positions: Sequence[int], names: Sequence[str], **options: Any) -> None:
    """Write names beside the rows of a drawing, without an axis."""
    ax.set_yticks(positions, names, **options)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)


@contextmanager
def figure(path: Path, *shape: int, figsize: tuple[float, float], dpi: int = 130, **options: Any) -> Iterator[Any]:
    """Save what is drawn on the axes."""
    from matplotlib.figure import Figure

    drawn = Figure(layout="constrained", figsize=figsize)  # needs no screen
    axes = drawn.subplots(*shape, **options)
    for ax in np.ravel(axes):
        ax.spines[["top", "right"]].set_visible(False)
    yield axes
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn.savefig(path, dpi=dpi)
