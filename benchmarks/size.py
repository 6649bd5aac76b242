"""Count lines and statements, so that the code is seen to grow or to shrink: ``python -m benchmarks.size``.

A statement is one of Python's grammar. Docstrings and comments are none, and neither do line breaks count: code that
is packed onto fewer lines has as many.
"""

import ast
from collections import Counter, defaultdict
from pathlib import Path

FOLDERS = ("src", "benchmarks")


def count(path: Path) -> tuple[int, int]:
    """Lines and statements of a file."""
    text = path.read_text("utf-8")
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)]
    values = (node.value for node in nodes if isinstance(node, ast.Expr))
    docs = [value for value in values if isinstance(value, ast.Constant) and isinstance(value.value, str)]
    return text.count("\n"), len(nodes) - len(docs)


def main() -> None:
    """Print both numbers for each package."""
    root = Path(__file__).parents[1]
    totals: dict[str, Counter[str]] = defaultdict(Counter)
    for path in sorted(path for folder in FOLDERS for path in (root / folder).rglob("*.py")):
        lines, statements = count(path)
        for place in (str(path.parent.relative_to(root)), f"all of {path.relative_to(root).parts[0]}"):
            totals[place].update(lines=lines, statements=statements)
    print(f"{'package':24}{'lines':>8}{'statements':>12}")
    for place in sorted(totals, key=lambda place: place.startswith("all")):
        print(f"{place:24}{totals[place]['lines']:8,}{totals[place]['statements']:12,}")


if __name__ == "__main__":
    main()
