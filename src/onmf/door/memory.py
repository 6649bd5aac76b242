"""A few rows that a model keeps, so that an update can tell a new cluster from one that was there before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array, vstack

from onmf.io.rules import Rule, array, integer, optional, require

MOST = 2_000  # rows
SEED = 730_154_829  # of the draws of rows


@dataclass(frozen=True, eq=False)
class Memory:
    """Some of the rows that a model was learnt from, drawn evenly."""

    rows: csr_array  # counts, with the features of the model
    n_rows: int  # how many rows they stand for

    def joined(self, new: csr_array, n: int) -> Memory:
        """These rows and some of n new ones, each of which had the same chance to be among ``new``."""
        most = min(MOST, self.rows.shape[0] + new.shape[0])
        kept = min(round(most * self.n_rows / (self.n_rows + n)), self.rows.shape[0])
        rng = np.random.default_rng(SEED)
        parts = (_drawn(rng, self.rows, kept), _drawn(rng, new, most - kept))
        return Memory(csr_array(vstack(parts, format="csr")), self.n_rows + n)

    def parts(self) -> dict[str, Any]:
        """The entries of a model file."""
        rows = self.rows
        small = rows.data.astype(np.float32)
        return {
            "memory_data": small if np.array_equal(small, rows.data) else rows.data.astype(np.float64),
            "memory_indices": rows.indices.astype(np.int32),
            "memory_indptr": rows.indptr.astype(np.int64),
            "memory_n_rows": int(self.n_rows),
        }


def _drawn(rng: np.random.Generator, rows: csr_array, n: int) -> Any:
    return rows[np.sort(rng.permutation(rows.shape[0])[:n])]


def memory_rules(p: int) -> dict[str, Rule]:
    """Rules for the entries of a model file with p features."""
    return {
        "memory_data": optional(array(("float32", "float64"), None, low=0)),
        "memory_indices": optional(array(("int32",), None, low=0, high=p - 1)),
        "memory_indptr": optional(array(("int64",), None, low=0)),
        "memory_n_rows": optional(integer(1)),
    }


def check_memory(parts: Mapping[str, Any]) -> None:
    """Refuse entries of a model file that contradict each other."""
    names = [name for name in memory_rules(1) if name in parts]
    if not names:
        return
    whole = len(names) == len(memory_rules(1))
    require(whole, "the rows that it keeps are not complete")
    data, indices, indptr = (parts[f"memory_{name}"] for name in ("data", "indices", "indptr"))
    ordered = len(indptr) > 0 and indptr[0] == 0 and indptr[-1] == len(data) and (np.diff(indptr) >= 0).all()
    require(ordered and len(indices) == len(data), "the rows that it keeps are no rows")


def memory_of(parts: Mapping[str, Any], p: int) -> Memory | None:
    """The rows in a model file, with p features; None if it has none."""
    if "memory_n_rows" not in parts:
        return None
    data, indices, indptr = (parts[f"memory_{name}"] for name in ("data", "indices", "indptr"))
    rows = csr_array((data, indices, indptr), shape=(len(indptr) - 1, p))
    rows.sum_duplicates()
    return Memory(rows, int(parts["memory_n_rows"]))
