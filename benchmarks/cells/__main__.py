"""Cells: scanpy's k-means and Leiden, KL-ONMF as in the paper, and the defaults for cells, side by side.

    python -m benchmarks.cells [--seeds 5] [--sets NAME ...] [--contenders NAME ...] [--out docs/cells]
    python -m benchmarks.cells --reads | --million | --figures [--out docs/cells]

No contender sees the classes, only their number. With --out, the records are stored in results.json, and those of
other sets and contenders that are there are kept.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.__main__ import describe_machine
from onmf.io.files import write_whole

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
    part = parser.add_mutually_exclusive_group()
    part.add_argument("--reads", action="store_true", help="compare the views on molecules and on reads")
    part.add_argument("--million", action="store_true", help="measure a million generated cells")
    part.add_argument("--figures", action="store_true", help="draw the map of the sorted blood cells again")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sets", nargs="*", help="by default all that are on this machine")
    parser.add_argument("--contenders", nargs="*", choices=list(CONTENDERS))
    parser.add_argument("--cells", type=int, default=1_000_000, help="number of cells for --million")
    parser.add_argument(
        "--quick", action="store_true", help="use tiny data: checks that it runs; the numbers mean nothing"
    )
    parser.add_argument("--out", type=Path, help="folder for the results; without it, they are printed only")
    options = parser.parse_args(argv)
    warnings.filterwarnings("ignore", category=FutureWarning, module="scanpy|anndata")
    tiny = [sets.TINY] if options.quick else None
    if options.figures:
        figures.save_map(sets.TINY if options.quick else "zheng_facs10", options.out or Path())
        return
    if options.reads:
        name, records = "reads", reads.measure_reads(options.sets or tiny or MOLECULES, options.seeds)
    elif options.million:
        number = 4_000 if options.quick else options.cells
        name, records = "million", million.measure_cells(number, options.contenders or STANDARD)
    else:
        chosen = options.sets or tiny or sets.available_sets()
        name, records = "sets", sets.measure_all(chosen, options.contenders or list(CONTENDERS), options.seeds)
    machine = describe_machine()
    if options.out is None:
        print(f"\n{PARTS[name][2](records)}\nMeasured on {machine}.")
    else:
        write(options.out, name, records, machine)


def write(folder: Path, part: str, records: Records, machine: str) -> None:
    """Add records to results.json, and write the table and the figure of their part."""
    file, keys, to_markdown = PARTS[part]
    results = folder / "results.json"
    content = json.loads(results.read_text()) if results.exists() else {}
    measured = {tuple(record[key] for key in keys) for record in records}
    kept = [r for r in content.get(part, []) if tuple(r[key] for key in keys) not in measured]
    content |= {"machine": machine, part: [*kept, *records]}
    text = f"Measured on {machine}.\n\n" + to_markdown(content[part])
    folder.mkdir(parents=True, exist_ok=True)
    save(results, json.dumps(content, indent=1) + "\n")
    save(folder / file, text)
    if part == "sets":
        figures.save_results(content[part], folder / "results.png")
    print(text)


def save(path: Path, text: str) -> None:
    """Write a text file completely or not at all."""
    write_whole(path, lambda file: file.write(text.encode()))


if __name__ == "__main__":
    main()
