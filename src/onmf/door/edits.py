"""Edits of a result by people: what they are, which are possible, and the file that holds them.

An edit is a dict with the numbers that people read, as it stands in ``edits.json``:

    {"merge": [3, 8]}    {"split": 5, "into": 3}    {"rename": {"2": "space"}}    {"set aside": [9]}
    {"move": ["a.txt", "b.txt"], "to": 4}

The smallest number stays in a merge. In a split the largest part keeps the number, and the others get new ones: no
number is given twice. ``"to": null`` leaves rows unassigned.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onmf.estimator import is_integer
from onmf.io.limits import read_small
from onmf.io.model_file import parse_json
from onmf.io.rules import STRING, Rule, abbreviate, check, integer, of_type, one_of, require
from onmf.naming import listed, renamed

Edit = dict[str, Any]
EDITS, FORMAT, VERSION = "edits.json", "edits", 1
MEGABYTES = 64  # of a file of edits, at most
MOST_PARTS = 10_000  # of one split


def _numbers(least: int) -> Rule:
    return Rule(
        lambda value: isinstance(value, list) and len(value) >= least and all(map(is_integer, value)),
        f"a list of {'at least two ' * (least > 1)}numbers of clusters",
    )


NUMBER = Rule(is_integer, "the number of a cluster")
FORMS: dict[str, dict[str, Rule]] = {
    "merge": {"merge": _numbers(2)},
    "split": {
        "split": NUMBER,
        "into": Rule(lambda n: is_integer(n) and 2 <= n <= MOST_PARTS, f"a number of parts from 2 to {MOST_PARTS:,}"),
    },
    "rename": {
        "rename": Rule(
            lambda value: (
                isinstance(value, dict)
                and len(value) > 0
                and all(number.isascii() and number.isdecimal() and isinstance(value[number], str) for number in value)
            ),
            "names by the numbers of clusters",
        )
    },
    "set aside": {"set aside": _numbers(1)},
    "move": {
        "move": Rule(
            lambda value: isinstance(value, list) and len(value) > 0 and all(isinstance(name, str) for name in value),
            "a list of names of rows",
        ),
        "to": Rule(lambda value: value is None or is_integer(value), "the number of a cluster, or null"),
    },
}
"""The parts of each edit, by its name, and what they must be."""


def check_form(edit: Any, number: int) -> str:
    """The name of an edit; refused if it has another form than those above. ``number`` counts from 1."""
    name = next((name for name in FORMS if isinstance(edit, dict) and name in edit), None)
    known = ", ".join(map(repr, FORMS))
    require(name is not None, f"Edit {number} is {abbreviate(edit)}: an edit is one of {known}.")
    assert name is not None
    for key in (*FORMS[name], *edit):
        parts = " and ".join(map(repr, FORMS[name]))
        require(key in edit and key in FORMS[name], f"Edit {number} is {abbreviate(edit)}: it has to have {parts}.")
        rule = FORMS[name][key]
        require(rule.fits(edit[key]), f"Edit {number} has {abbreviate(edit[key])} for {key!r}: use {rule.description}.")
    return name


@dataclass
class Numbering:
    """Which clusters there are after some edits, and what they are called. Numbers are those of people.

    It refuses an edit that is not possible, before anything is read or fitted.
    """

    names: list[str]  # by number; empty for a number without a cluster
    first: int  # number of the first cluster
    given: set[int] = field(default_factory=set)  # clusters whose names were given by hand, or with seeds
    made: set[int] = field(default_factory=set)  # other clusters that edits made, whose names are made at the end

    def __post_init__(self) -> None:
        for number in self.made:
            self._leave_open(number)

    def _leave_open(self, number: int) -> None:
        """Leave the name of a cluster to the end, unless it was given."""
        if number not in self.given:
            self.made.add(number)
            self.names[number - self.first] = f"cluster {number} as edits made it"

    def there(self) -> list[int]:
        """The numbers of the clusters that there are."""
        return [number for number, name in enumerate(self.names, self.first) if name]

    def check(self, *numbers: int) -> None:
        """Refuse numbers of clusters that there are not."""
        for number in numbers:
            if number in self.there():
                continue
            gone = self.first <= number < self.first + len(self.names)
            why = " any more: it was merged or set aside" if gone else ""
            raise ValueError(f"There is no cluster {number}{why}. The clusters are {listed(self.there())}.")

    def drop(self, number: int) -> None:
        """Leave a number without a cluster."""
        self.names[number - self.first] = ""
        self.given.discard(number)
        self.made.discard(number)

    def merge(self, *clusters: int) -> None:
        """Merge clusters under the smallest number. A name that was given stays, that of the smallest number first."""
        self.check(*clusters)
        for number in clusters:
            require(clusters.count(number) == 1, f"Cluster {number} cannot be merged with itself.")
        kept, *others = sorted(clusters)
        named = next((number for number in (kept, *others) if number in self.given), None)
        if named is not None:
            self.names[kept - self.first] = self.names[named - self.first]
            self.given.add(kept)
            self.made.discard(kept)
        for number in others:
            self.drop(number)
        self._leave_open(kept)

    def split(self, cluster: int, parts: int) -> list[int]:
        """Split a cluster. → the numbers of the parts, that of the largest one first"""
        self.check(cluster)
        new = [len(self.names) + self.first + i for i in range(parts - 1)]
        self.names += [""] * len(new)
        for number in (cluster, *new):
            self._leave_open(number)
        return [cluster, *new]

    def rename(self, names: Mapping[int, str]) -> None:
        """Give clusters other names."""
        self.check(*names)
        self.names = renamed(self.names, names, self.first)
        self.given |= set(names)
        self.made -= set(names)

    def set_aside(self, *clusters: int) -> None:
        """Leave the rows of clusters without one."""
        self.check(*clusters)
        for number in set(clusters):
            self.drop(number)
        require(self.there(), "No cluster would be left: keep at least one.")

    def apply(self, edit: Edit, number: int = 1) -> list[int]:
        """Apply an edit. → the numbers of the parts of a split"""
        name = check_form(edit, number)
        if name == "merge":
            self.merge(*edit["merge"])
        elif name == "split":
            return self.split(edit["split"], edit["into"])
        elif name == "rename":
            self.rename({int(number): name for number, name in edit["rename"].items()})
        elif name == "set aside":
            self.set_aside(*edit["set aside"])
        elif edit["to"] is not None:
            self.check(edit["to"])
        return []


def write_edits(path: Path, kind: str, run: str, edits: Sequence[Edit]) -> None:
    """Write a file of edits for a run, one edit a line, so that people can read and change it."""
    lines = ",\n  ".join(json.dumps(edit, ensure_ascii=False) for edit in edits)
    head = json.dumps({"onmf": FORMAT, "version": VERSION, "kind": kind, "run": run})[:-1]
    path.write_text(f'{head},\n "edits": [\n  {lines}\n]}}\n', "utf-8", errors="replace")


def read_edits(path: str | Path, kind: str) -> tuple[str, list[Edit]]:
    """Read a file of edits. → the result that they were made for, and the edits"""
    path = Path(path)
    try:
        content = parse_json(read_small(path, MEGABYTES, "a file of edits has a line for each edit").encode())
        require(isinstance(content, dict) and content.get("onmf") == FORMAT, "it does not say that it holds edits")
        written = content.get("version")
        require(integer(1).fits(written), "it does not state its version")
        require(written == VERSION, f"it is of version {written}, and this onmf knows version {VERSION}: upgrade onmf")
        rules = {"onmf": STRING, "version": integer(1), "kind": STRING, "run": STRING, "edits": of_type(list, "a list")}
        check(rules, content, closed=True)
        check({"kind": one_of(kind)}, content)
        for number, edit in enumerate(content["edits"], 1):
            check_form(edit, number)
    except (ValueError, RecursionError) as error:
        if str(path) in str(error):
            raise
        reason = " ".join(str(error).split()).rstrip(".")
        raise ValueError(f"{path} cannot be used as edits: {reason}.") from error
    return content["run"], content["edits"]
