"""Where documents came from, and what happened to them on the way, for people to read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from .read import Texts


def describe(texts: Texts) -> dict[str, Any]:
    """Summary of the reading: the source, and what was repaired, dropped or skipped."""
    return {
        "name": texts.name,
        "kind": texts.kind,
        "strip": list(texts.strip),
        "repaired": dict(texts.repaired),
        "encoded": texts.n_encoded,
        "skipped": [list(skipped) for skipped in texts.skipped],
    }


def source_notes(source: Mapping[str, Any]) -> Iterator[str]:
    """Yield what was repaired, dropped or skipped, and how the documents were clustered, as sentences."""
    if repaired := source.get("repaired"):
        yield f"{so_many(sum(repaired.values()), 'document')} not in UTF-8, read as {', '.join(repaired)}."
    if encoded := source.get("encoded"):
        yield f"Encoded attachments dropped from {so_many(encoded, 'document')}."
    if skipped := source.get("skipped"):
        names = [f"{name} ({why})" for name, why in skipped]
        yield f"{so_many(len(skipped), 'file')} left out: {some(names)}."
    dates = source.get("dates", {})
    if missing := dates.get("missing"):
        yield f"{so_many(missing, 'document')} without a date."
    if unread := dates.get("unread"):
        names = [f"\u201c{text}\u201d (document {name})" for text, name in dates["examples"]]
        yield f"{so_many(unread, 'date')} not understood: {some(names, unread)}. Write dates as 2024-03-01."
    if how := source.get("fit"):
        yield how


def no_documents(texts: Iterable[Any]) -> str:
    """Say that a source has no documents, and which of its files were left out."""
    if not isinstance(texts, Texts):
        return "There are no documents to count words in."
    return " ".join([f"{texts.name} contains no documents.", *source_notes(describe(texts))])


def so_many(n: int, name: str) -> str:
    """A count and its noun, such as ``1 document`` or ``2 documents``."""
    return f"{n:,} {name}{'' if n == 1 else 's'}"


def some(names: Sequence[str], n: int | None = None, most: int = 5) -> str:
    """The first few names, and how many more there are of ``n``."""
    n = len(names) if n is None else n
    return ", ".join(names[:most]) + (f" and {n - most:,} more" if n > most else "")
