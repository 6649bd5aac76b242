"""Cells: scanpy's k-means and Leiden, KL-ONMF as in the paper, and the defaults for cells, side by side.

    python -m benchmarks.cells [--seeds 5] [--sets NAME ...] [--contenders NAME ...] [--out docs/cells]
    python -m benchmarks.cells --reads | --million | --figures [--out docs/cells]

No contender sees the classes, only their number. With --out, the records are stored in results.json, and those of
other sets and contenders that are there are kept.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.__main__ import describe_machine
from benchmarks.optima import save
from onmf.datasets import list_datasets

from . import figures, million, reads, sets, tables
from .contenders import CONTENDERS

Records = list[dict[str, Any]]

MOLECULES = ("zheng_facs10", "hash_4lines", "sc_dropseq", "pbmc4k_top2000")
"""Sets of molecules, which ``--reads`` turns into reads."""

STANDARD = ("default", "kmeans", "leiden")
"""Contenders on a million cells."""

PARTS: dict[str, tuple[str, tuple[str, ...], Callable[[Records], str]]] = {
    "sets": ("results.md", ("set", "contender"), tables.to_markdown),
    "reads": ("reads.md", ("set",), reads.to_markdown),
    "million": ("million.md", ("cells", "contender"), million.to_markdown),
}
"""The file of each part, what tells its records apart, and how they become a table."""


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print, and write JSON, Markdown and figures."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cells", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = parser.add_mutually_exclusive_group()
    parts.add_argument("--reads", action="store_true", help="compare the views on molecules and on reads")
    parts.add_argument("--million", action="store_true", help="measure a million generated cells")
    parts.add_argument("--figures", action="store_true", help="draw the map of the sorted blood cells again")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sets", nargs="*", help="by default all that are on this machine")
    parser.add_argument("--contenders", nargs="*", choices=list(CONTENDERS))
    parser.add_argument("--cells", type=int, default=1_000_000, help="number of cells for --million")
    parser.add_argument(
        "--quick", action="store_true", help="use tiny data: checks that it runs; the numbers mean nothing"
    )
    parser.add_argument("--out", type=Path, help="folder for the results; without it, they are printed only")
    options = parser.parse_args(argv)
    tiny = [sets.TINY] if options.quick else None
    if options.figures:
        figures.save_map(sets.TINY if options.quick else "zheng_facs10", options.out or Path())
        return
    if options.reads:
        part, measured = "reads", reads.measure_reads(options.sets or tiny or MOLECULES, options.seeds)
    elif options.million:
        number = 4_000 if options.quick else options.cells
        part, measured = "million", million.measure_cells(number, options.contenders or STANDARD)
    else:
        chosen = options.sets or tiny or sets.available_sets()
        part, measured = "sets", sets.measure_all(chosen, options.contenders or list(CONTENDERS), options.seeds)
    content: dict[str, Any] = {}
    for records in measured:
        content = stored(options.out, part, records) if options.out else {part: [*content.get(part, []), *records]}
    file, _, to_markdown = PARTS[part]
    text = to_markdown(content[part])
    if part != "reads":  # which has no times
        text = f"Measured on {describe_machine()}, scanpy {version('scanpy')}.\n\n" + text
    print(text)
    if options.out:
        save(options.out / file, text)
        if part == "sets":
            figures.save_results(content[part], options.out / "results.png")


def stored(folder: Path, part: str, records: Records) -> dict[str, Records]:
    """Put records into results.json, in place of those of the same run before, and return all that is there."""
    keys = PARTS[part][1]
    results = folder / "results.json"
    content: dict[str, Records] = json.loads(results.read_text()) if results.exists() else {}
    new = {tuple(record[key] for key in keys) for record in records}
    kept = [record for record in content.get(part, []) if tuple(record[key] for key in keys) not in new]
    content[part] = sorted([*kept, *records], key=order)
    folder.mkdir(parents=True, exist_ok=True)
    save(results, json.dumps(content, indent=1) + "\n")
    return content


def order(record: dict[str, Any]) -> tuple[int, int, int]:
    """Return where a record stands: by set or number of cells, by contender, by seed."""
    names = [info.name for info in list_datasets()]
    place = names.index(record["set"]) if record.get("set") in names else -record.get("cells", 0)
    return place, list(CONTENDERS).index(record.get("contender", "kmeans")), record.get("seed", 0)


if __name__ == "__main__":
    # Threads of OpenMP that wait by spinning make k-means several times slower if anything else runs on the machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    main()
