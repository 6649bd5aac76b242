"""Writes tables and figures to files."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from onmf.io.files import write_whole

from .compare import Table


def write_table(folder: Path, name: str, table: Table, records: Iterable[dict[str, Any]]) -> list[Path]:
    """Write the records as JSON and CSV, and the table as Markdown."""
    lines = list(records)
    columns = list(dict.fromkeys(key for line in lines for key in line))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    contents = {
        "json": json.dumps(lines, indent=1, default=_plain) + "\n",
        "csv": text.getvalue(),
        "md": table.to_markdown(),
    }
    paths = [folder / f"{name}.{suffix}" for suffix in contents]
    for path, content in zip(paths, contents.values(), strict=True):
        write_whole(path, lambda file, content=content: file.write(content.encode()))  # type: ignore[misc]
    return paths


def write_figure(folder: Path, name: str, axes: Any) -> list[Path]:
    """Write the figure of these axes as PNG and SVG."""
    import matplotlib.pyplot as plt

    figure = axes.flat[0].figure
    paths = [folder / f"{name}.{suffix}" for suffix in ("png", "svg")]
    for path in paths:
        write_whole(path, lambda file, path=path: figure.savefig(file, format=path.suffix[1:], dpi=130))  # type: ignore[misc]
    plt.close(figure)
    return paths


def _plain(value: Any) -> Any:
    return value.item()
