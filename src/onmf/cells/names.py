"""Names of cells and genes: unique, complete, and what they look like."""

from __future__ import annotations

import re
from collections.abc import Sequence

STABLE_ID = re.compile(r"(ENS[A-Z]{0,6}G\d{6,}|FBgn\d{6,}|WBGene\d{6,})(\.\d+)?")
"""Identifiers of genes in Ensembl, FlyBase and WormBase."""

SYMBOL = re.compile(
    r"(MT-|mt-|RP[SL]\d|Rp[sl]\d|HLA-|LINC\d|ERCC-|Gm\d)\S*|[A-Z]{2,}[A-Z0-9.-]*\d[A-Z0-9.-]*|[A-Z][a-z]{1,5}\d{1,3}[a-z]?"
    r"|ACTB|Actb|GAPDH|Gapdh|XIST|Xist|EPCAM|Epcam|VIM|Vim|KIT|ALB|Alb|INS|Ins|GNLY|NKG7|LYZ|LYZ\d|FTH1|FTL|TMSB4X"
)
"""Symbols of genes. Most have letters followed by a number."""

CELL = re.compile(r"(.*[_.:-])?[ACGTN]{8,}([_.:-].*)?|(GSM|SRR|ERR|DRR|SRS|SRX)\d{4,}.*|[A-P](0?[1-9]|1\d|2[0-4])")
"""Barcodes, accessions of sequencing runs, and wells of plates."""

CELL_WORD = re.compile(r"cell|barcode|sample|well|plate|spot|nucle", re.IGNORECASE)
"""Words in names of cells."""

SAMPLE = 500
"""Number of names that are looked at."""


def gene_share(names: Sequence[str]) -> float:
    """Share of names that look like genes, minus the share that look like cells: from -1 to 1."""
    some = list(names[:: max(1, len(names) // SAMPLE)])
    score = 0
    for name in some:
        if CELL.fullmatch(name) or CELL_WORD.search(name):
            score -= 1
        elif STABLE_ID.fullmatch(name) or SYMBOL.fullmatch(name):
            score += 1
    return score / max(1, len(some))


def stable_ids(names: Sequence[str]) -> bool:
    """Whether most of the names are identifiers rather than symbols of genes."""
    some = names[:SAMPLE]
    return 2 * sum(STABLE_ID.fullmatch(name) is not None for name in some) > len(some)


def complete(names: Sequence[str | None] | None, count: int, noun: str) -> tuple[list[str], list[str]]:
    """Fill in missing names and make all of them unique.

    Parameters
    ----------
    names : sequence or None
        The names; None for a missing one, or for all.
    count : int
        How many there must be.
    noun : {"cell", "gene"}
        What they name.

    Returns
    -------
    names : list of str
        Unique names.
    notes : list of str
        What was changed.
    """
    if names is None:
        return [f"{noun} {i + 1}" for i in range(count)], [f"The file has no names of {noun}s: they are numbered."]
    notes = []
    if missing := sum(not name for name in names):
        notes.append(f"{noun.capitalize()}s without a name are numbered: {missing:,} of {count:,}.")
    found = [name or f"{noun} {i + 1}" for i, name in enumerate(names)]
    taken = set(found)
    if len(taken) == len(found):
        return found, notes
    result, seen, changed = [], set[str](), 0
    counters: dict[str, int] = {}
    for name in found:
        new = name
        while new in seen or (new != name and new in taken):
            counters[name] = counters.get(name, 0) + 1
            new = f"{name}-{counters[name]}"
        changed += new != name
        seen.add(new)
        result.append(new)
    notes.append(f"Names of {noun}s that occurred before got the endings -1, -2 and so on: {changed:,} of {count:,}.")
    return result, notes
