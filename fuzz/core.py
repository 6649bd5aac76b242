"""Fits: every parameter of the estimator, on data of every kind, and what can be asked of the model afterwards."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from .data import Data, make_data
from .play import judge, names
from .runner import Failure

GOOD: dict[str, tuple[tuple[str, ...], float]] = {
    "beta_loss": (
        ("'kullback-leibler'", "'frobenius'", "'cosine'", "'itakura-saito'", "'frobenius'", "'cosine'")
        + ("0", "1", "2", "0.5", "0.25", "1.5", "3", "-1", "-0.5", "10", "-10", "0.001", "0.999999", "1.000001", "40")
        + ("np.float32(0.5)", "np.int64(2)", "-1e-9", "100.5"),
        0.65,
    ),
    "init": (
        ("'++'", "'random'", "'random-partition'", "'++'", "'random'", "'random-partition'", "'consensus'", "'snpa'")
        + ("lambda X, k, random_state: np.ones((k, P)) + np.eye(k, P)", "CENTROIDS", "CENTROIDS"),
        0.5,
    ),
    "n_init": (("2", "3", "5"), 0.15),
    "max_iter": (("1", "2", "3", "10", "300", "np.int32(5)"), 0.25),
    "tol": (("0", "0.0", "1e-12", "0.1", "10", "5e-324", "1e300"), 0.25),
    "refine": (("'local-search'",), 0.3),
    "n_consensus": (("1", "2", "3", "7"), 0.1),
    "smoothing": (("0", "0.0", "1", "1e-10", "1e-300", "5e-324", "1e10", "1e300", "True * 0.5"), 0.25),
    "engine": (
        ("'cpu'", "'reference'", "'blocks'", "ReferenceEngine()", "CpuEngine(2)", "BlocksEngine(CpuEngine(1))")
        + ("'dask'", "'gpu'"),
        0.15,
    ),
    "n_threads": (("1", "2", "3"), 0.15),
    "random_state": (("0", "1", "7", "np.random.RandomState(3)"), 0.8),
    "forgetting": (("1", "0.5", "1e-300", "5e-324"), 0.1),
    "sparse_output": (("False", "np.True_"), 0.1),
    "verbose": (("1", "2"), 0.05),
}
"""Values of each parameter that are allowed, and how often it is given."""

BAD: dict[str, tuple[str, ...]] = {
    "n_clusters": ("0", "-1", "2.0", "True", "'3'", "None", "10**30", "math.nan", "10**6", "[2]", "np.array(2)"),
    "beta_loss": ("math.nan", "math.inf", "'euclidean'", "None", "10**400", "1e308", "-1e308", "[1]", "1j", "True")
    + ("np.array([1.0])", "1e-320", "b'cosine'"),
    "init": ("'nothing'", "None", "3", "np.ones((1, 1))", "[[1]]", "[]", "np.zeros((2, 2))", "'SNPA'")
    + ("lambda X, k, random_state: None", "lambda X, k, random_state: np.ones((0, 3))", "[['a']]", "np.array(['++'])", "{}"),
    "n_init": ("0", "-3", "1.5", "None", "'2'", "True"),
    "max_iter": ("0", "-1", "1e3", "None", "math.inf"),
    "tol": ("-1", "math.nan", "math.inf", "'0'", "None", "10**400", "True", "np.array([0.1])", "1j"),
    "refine": ("'search'", "True", "['local-search']", "np.array(['local-search'])", "0"),
    "n_consensus": ("0", "-1", "2.5", "None"),
    "smoothing": ("-1", "math.nan", "math.inf", "None", "'1e-3'", "10**400", "-5e-324"),
    "engine": ("'cuda'", "None", "5", "CpuEngine", "''", "['cpu']"),
    "n_threads": ("0", "-1", "1.5", "'2'", "10**30", "True", "np.array([1])"),
    "random_state": ("-1", "'a'", "1.5", "2**40", "np.random.default_rng(0)", "[1]"),
    "forgetting": ("0", "-1", "2", "math.nan", "None", "'1'", "10**400"),
    "sparse_output": ("1", "None", "'yes'"),
    "verbose": ("-1", "None", "0.5", "'1'"),
}
"""Values that are to be refused in a sentence."""

WEIGHTS = (
    "np.ones(N)",
    "np.arange(N)",
    "np.arange(N) + 1",
    "np.arange(N) % 2",
    "np.full(N, 5e-324)",
    "np.full(N, 1e-300)",
    "np.linspace(0, 1, N)",
    "np.full(N, 1e30)",
    "np.full(N, 1e29)",
    "np.geomspace(1e-30, 1e30, N)",
    "np.geomspace(1e-320, 1, N)",
    "np.ones(N, dtype='float32')",
    "[1] * N",
    "2",
    "0.5",
    "True",
    "np.zeros(N)",
    "np.full(N, np.nan)",
    "np.full(N, np.inf)",
    "-np.ones(N)",
    "np.ones(N + 1)",
    "np.ones(N - 1)",
    "np.ones((N, 1))",
    "'weights'",
    "['a'] * N",
    "np.full(N, 1e31)",
    "np.full(N, None)",
    "1j * np.ones(N)",
    "pd.Series(np.ones(N))",
    "np.arange(N)[::-1]",
    "0",
    "np.ones(2 * N)[::2]",
)

ACTS = {
    "fit": 70,
    "threads": 5,
    "dense and sparse": 5,
    "repeats": 4,
    "partial_fit": 7,
    "new data": 4,
    "interrupt": 2,
    "stop": 1,
    "functions": 2,
}
"""What a case does, and how often."""


@dataclass
class Case:
    """A fit, as source text."""

    data: Data
    k: str
    params: dict[str, str] = field(default_factory=dict)
    weights: str | None = None
    act: str = "fit"
    other: Data | None = None  # new data
    seed: int = 0

    def setup(self) -> list[str]:
        """The statements that make the data ``X`` and the weights ``w``."""
        lines = self.data.lines()
        if self.weights is not None:
            lines.append("w = " + re.sub(r"\bN\b", str(self.data.n), self.weights))
        return lines

    def model(self, **changes: str) -> str:
        """The expression of the estimator."""
        given = {"n_clusters": self.k, **self.params, **changes}
        return "ONMF(" + ", ".join(f"{name}={value}" for name, value in given.items()) + ")"


def make_case(seed: int, number: int) -> Case:
    """The case of this number."""
    rng = random.Random(f"core {seed} {number}")
    data = make_data(rng)
    act = rng.choices(tuple(ACTS), tuple(ACTS.values()))[0]
    params = {name: rng.choice(values) for name, (values, share) in GOOD.items() if rng.random() < share}
    k = str(min(rng.choice((1, 2, 2, 3, 3, 3, 4, 5, 8)), data.n + (rng.random() < 0.1)))
    fit_together(rng, params, data, k)
    case = Case(data, k, params, act=act, seed=rng.randrange(2**31))
    if act in ("threads", "dense and sparse", "repeats"):
        params["random_state"] = str(rng.randrange(9))
    if rng.random() < 0.18:
        case.weights = rng.choice(WEIGHTS)
    if rng.random() < 0.12:
        name = rng.choice(tuple(BAD))
        value = rng.choice(BAD[name])
        if name == "n_clusters":
            case.k = value
        else:
            params[name] = value
    if act == "new data":
        case.other = make_data(rng)
    return case


def fit_together(rng: Random, params: dict[str, str], data: Data, k: str) -> None:
    """Make parameters that refuse each other rare, so that most cases fit something."""
    if params.get("init") == "CENTROIDS":
        values = [[rng.choice((0.1, 0.5, 1.0, 2.0, 1e-9, 1e9)) for _ in range(data.p)] for _ in range(int(k))]
        params["init"] = f"np.array({values})"
    elif params.get("init", "").startswith("lambda"):
        params["init"] = params["init"].replace("P", str(data.p))
    if "engine" in params and params["engine"] not in ("'cpu'", "'blocks'"):
        params.pop("n_threads", None)
    wrap = data.wrap[0]
    parts = "lambda" in wrap or "da." in wrap or "delayed" in wrap
    if parts:
        params.pop("refine", None)
        if params.get("init") == "'consensus'":
            params["init"] = "'random'"
    if ("Blocks" in params.get("engine", "") or "blocks" in params.get("engine", "")) and "lambda" not in wrap:
        del params["engine"]
    elif parts and "engine" in params and rng.random() < 0.9:
        del params["engine"]
    if "refine" in params and rng.random() < 0.9:
        params["beta_loss"] = rng.choice(("'cosine'", "'kullback-leibler'"))
    if params.get("init") == "'consensus'":
        params.pop("n_init", None)
        params.setdefault("n_consensus", "3")
    if params.get("engine") in ("'gpu'", "'dask'") and rng.random() < 0.8:
        del params["engine"]


class Core:
    """Fits of ugly data."""

    name = "core"
    seconds = 10.0
    memory = 2 << 30

    def warm_up(self) -> None:
        """Compile, or load, the kernels for the common types."""
        import warnings

        import numpy as np
        import scipy.sparse as sp

        from onmf import ONMF

        names()
        counts = np.arange(30).reshape(6, 5) % 4
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for dtype in ("int64", "float64", "float32", "uint8", "int32"):
                for X in (counts.astype(dtype), sp.csr_array(counts.astype(dtype))):
                    for loss in ("kullback-leibler", "cosine", "frobenius"):
                        refine = None if loss == "frobenius" else "local-search"
                        for weights in (None, np.linspace(0.5, 1, 6)):
                            model = ONMF(3, beta_loss=loss, refine=refine, n_threads=1, random_state=0)
                            model.fit(X, sample_weight=weights).score(X)

    def run(self, seed: int, number: int) -> list[Failure]:
        """Run a case."""
        return judge(make_case(seed, number))

    def reproducer(self, seed: int, number: int, failure: Failure, folder: Path) -> str:
        """The lines that show a failure."""
        from .reproduce import snippet

        return snippet(make_case(seed, number), failure)
