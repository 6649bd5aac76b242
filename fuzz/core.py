"""Core cases: fits with all parameters of the estimator, on data of every kind, and calls of the model's methods."""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import numpy as np
from scipy.sparse import csr_array

from .acts import ACTS
from .data import Data, make_data
from .parameters import BAD, BAD_WEIGHTS, GOOD, GOOD_WEIGHTS
from .report import Failure
from .reproduce import smaller_data, snippet
from .stage import Stage, ignored_errors, imported, quiet

SIDE_BY_SIDE = ("threads", "dense and sparse", "repeats")
"""Acts that compare two fits; both must draw the same random numbers."""


@dataclass(frozen=True)
class Case:
    """A fit, as source text.

    Attributes
    ----------
    data : Data
        Data to fit.
    k : str
        Number of clusters.
    params : dict of str to str
        The other parameters of the estimator.
    weights : str or None
        Weights of the rows.
    act : str
        Kind of case, one of :data:`fuzz.acts.ACTS`.
    other : Data or None
        New data for the methods of the fitted model.
    seed : int
        Seed of all other random choices.
    """

    data: Data
    k: str
    params: dict[str, str] = field(default_factory=dict)
    weights: str | None = None
    act: str = "fit"
    other: Data | None = None
    seed: int = 0

    def setup(self) -> list[str]:
        """Return the statements that make the data ``X`` and the weights ``w``."""
        lines = self.data.lines()
        if self.weights is not None:
            lines.append("w = " + re.sub(r"\bN\b", str(self.data.n), self.weights))
        return lines

    def model(self, **changes: str) -> str:
        """Return the expression of the estimator."""
        params = {"n_clusters": self.k, **self.params, **changes}
        return "ONMF(" + ", ".join(f"{name}={value}" for name, value in params.items()) + ")"


class Core:
    """Fits of ugly data.

    Parameters
    ----------
    act : str, optional
        Kind of all cases, one of :data:`fuzz.acts.ACTS`; by default each case draws its own.
    """

    name = "core"
    seconds = 20.0  # far more than a case takes, but it may have to compile a kernel on a busy machine
    memory = 2 << 30

    def __init__(self, act: str | None = None) -> None:
        self.act = act

    def warm_up(self) -> None:
        """Compile the kernels for the common types, or load them from the cache."""
        ONMF = imported()["ONMF"]
        counts = np.arange(30).reshape(6, 5) % 4
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for dtype in ("int64", "float64", "float32", "uint8", "int32"):
                for X in (counts.astype(dtype), csr_array(counts.astype(dtype))):
                    for loss, refine in (("frobenius", None), ("cosine", "local-search"), (1, "local-search")):
                        for weights in (None, np.linspace(0.5, 1, 6)):
                            model = ONMF(3, beta_loss=loss, refine=refine, n_threads=1, random_state=0)
                            model.fit(X, sample_weight=weights).score(X)

    def make(self, seed: int, number: int) -> Case:
        """Make the case with this number."""
        rng = random.Random(f"core {seed} {number}")
        data = make_data(rng)
        act = rng.choices(tuple(ACTS), [share for _, share in ACTS.values()])[0]
        params = {name: rng.choice(values) for name, (values, share) in GOOD.items() if rng.random() < share}
        k = str(min(rng.choice((1, 2, 2, 3, 3, 3, 4, 5, 8)), data.n + (rng.random() < 0.1)))
        make_compatible(rng, params, data, int(k))
        if act in SIDE_BY_SIDE:
            params["random_state"] = str(rng.randrange(9))
        weights = rng.choice(GOOD_WEIGHTS) if rng.random() < 0.2 else None
        if rng.random() < 0.03:
            weights = rng.choice(BAD_WEIGHTS)
        if rng.random() < 0.12:
            name = rng.choice(tuple(BAD))
            params[name] = rng.choice(BAD[name])
        k = params.pop("n_clusters", k)
        other = make_data(rng) if "new data" in (act, self.act) else None
        return Case(data, k, params, weights, self.act or act, other, rng.randrange(2**31))

    def run(self, case: Case) -> list[Failure]:
        """Run a case."""
        seed_numpy(case.seed)
        stage = Stage(imported())
        with quiet() as ignored:
            stage.prepare(case.setup())
            ACTS[case.act][0](stage, case)
        stage.add(ignored_errors(ignored))
        return stage.failures

    def smaller(self, case: Case) -> Iterator[Case]:
        """Yield cases with fewer parameters, without weights, and with less data."""
        for name in case.params:
            if name == "random_state" and case.act in SIDE_BY_SIDE:
                continue
            yield replace(case, params={key: value for key, value in case.params.items() if key != name})
        if case.weights is not None:
            yield replace(case, weights=None)
        for data in smaller_data(case.data):
            yield replace(case, data=data)

    def reproducer(self, case: Case, failure: Failure, folder: Path) -> str:
        """Return the lines that reproduce a failure."""
        lines = failure.lines or "\n".join(case.setup())
        return snippet(lines if "random_state" in case.params else f"np.random.seed({case.seed})\n{lines}")


def seed_numpy(seed: int) -> None:
    """Seed the generator that ``random_state=None`` uses."""
    np.random.seed(seed)  # noqa: NPY002


def make_compatible(rng: Random, params: dict[str, str], data: Data, k: int) -> None:
    """Make incompatible parameters rare, so that most cases can be fitted."""
    init, engine = params.get("init", ""), params.get("engine", "")
    if "beta_loss" in params:
        params["beta_loss"] = re.sub(r"\bP\b", str(data.p), params["beta_loss"])
    batches = "lambda" in data.wrap[0]
    parts = batches or "da." in data.wrap[0] or "delayed" in data.wrap[0]
    if init == "CENTROIDS":
        values = [[rng.choice((0.1, 0.5, 1.0, 2.0, 1e-9, 1e9)) for _ in range(data.p)] for _ in range(k)]
        params["init"] = f"np.array({values})"
    elif init.startswith("lambda"):
        params["init"] = re.sub(r"\bP\b", str(data.p), init)
    elif init == "'consensus'":
        params.pop("n_init", None)
        params.setdefault("n_consensus", "3")
        if parts:
            params["init"] = "'random'"
    if engine not in ("", "'cpu'", "'blocks'"):
        params.pop("n_threads", None)
    incompatible = "locks" in engine and not batches
    if engine and (
        incompatible or (parts and rng.random() < 0.9) or (engine in ("'gpu'", "'dask'") and rng.random() < 0.8)
    ):
        del params["engine"]
    if parts:
        params.pop("refine", None)
    if "refine" in params and rng.random() < 0.95:
        params["beta_loss"] = rng.choice(("'cosine'", "'kullback-leibler'"))
    loss = params.get("beta_loss", "1")
    positive = loss == "0" or loss.startswith(("'ita", "-"))
    if positive and rng.random() < 0.7 and ("sp." in data.wrap[0] or has_zeros(data)):
        params["beta_loss"] = rng.choice(("0.5", "0.25", "'frobenius'", "1.5"))  # these are defined for zeros


def has_zeros(data: Data) -> bool:
    """Whether an entry is, or may be, zero."""
    return data.table is None or any(not x for row in data.table for x in row)
