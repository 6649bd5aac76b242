"""Valid and invalid values of the estimator's parameters and of weights, as source text."""

from __future__ import annotations


def words(text: str) -> list[str]:
    """Split a text into values that contain no blanks."""
    return text.split()


LOSSES = ["'kullback-leibler'", *["'frobenius'", "'cosine'"] * 2, "'itakura-saito'"]
LOSSES += words("0 1 2 0.5 0.25 1.5 3 -1 -0.5 10 -10 0.05 0.99 1.01 40 -0.05 100 -100 np.float32(0.5) np.int64(2)")
LOSSES += ["'negative-binomial'", "'bernoulli'", "'exponential'", "Bernoulli(0.0)", "NegativeBinomial(0.5, 'fit')"]
LOSSES += ["NegativeBinomial('auto')", "NegativeBinomial('auto', 'fit')", "NegativeBinomial(1e-3, smoothing=0.0)"]
LOSSES += ["NegativeBinomial(1e6, 'fit', 0.0)", "own_phi()", "own_phi('size')", "own_phi('fit')"]
LOSSES += ["Background()", "Background(0.0)", "ByLength()", "Favoured()", "SquaredDistance()", "Doubled()"]
LOSSES += ["Root('none')", "Root('size')", "Root('fit')", "WeightedKullbackLeibler(tuple(np.arange(P) + 1.0))"]
STARTS = [*["'++'", "'random'", "'random-partition'"] * 2, "'consensus'", "'snpa'", *["CENTROIDS"] * 2]
STARTS += ["lambda X, k, random_state: np.ones((k, P)) + np.eye(k, P)"]
ENGINES = ["'cpu'", "'reference'", "'blocks'", "'dask'", "'gpu'"]
ENGINES += ["ReferenceBackend()", "CpuBackend(2)", "Blocks(CpuBackend(1))"]

GOOD: dict[str, tuple[list[str], float]] = {
    "beta_loss": (LOSSES, 0.65),
    "init": (STARTS, 0.5),
    "n_init": (["2", "3", "5"], 0.15),
    "max_iter": (["1", "2", "3", "10", "300", "np.int32(5)"], 0.25),
    "tol": (["0", "0.0", "1e-12", "0.1", "10", "5e-324", "1e300"], 0.25),
    "refine": (["'local-search'"], 0.3),
    "n_consensus": (["1", "2", "3", "7"], 0.1),
    "smoothing": (["0", "0.0", "1", "1e-10", "1e-20", "1e10", "1e20"], 0.25),
    "engine": (ENGINES, 0.15),
    "n_threads": (["1", "2", "3"], 0.15),
    "random_state": (["0", "1", "7", "np.random.RandomState(3)"], 0.8),
    "forgetting": (["1", "0.5", "1e-300", "5e-324"], 0.1),
    "sparse_output": (["False", "np.True_"], 0.1),
    "verbose": (["1", "2"], 0.05),
}
"""Valid values, and the probability that the parameter is set. ``P`` is the number of features."""

BAD: dict[str, list[str]] = {
    "n_clusters": words("0 -1 2.0 True '3' None 10**30 math.nan 10**6 [2] np.array(2)"),
    "beta_loss": [
        *["NegativeBinomial", "own_phi", "Root('length')", "WeightedKullbackLeibler((1.0,))", "Bregman", "object()"],
        *words("math.nan math.inf 'euclidean' None 10**400 1e308 -1e308 [1] 1j True np.array([1.0]) 1e-320"),
        *words("0.001 0.999999 1.000001 -1e-9 100.5"),
    ],
    "init": [
        *words("'nothing' None 3 [[1]] [] 'SNPA' [['a']] np.array(['++']) {} np.ones((1,1)) np.zeros((2,2))"),
        "lambda X, k, random_state: None",
        "lambda X, k, random_state: np.ones((0, 3))",
    ],
    "n_init": words("0 -3 1.5 None '2' True"),
    "max_iter": words("0 -1 1e3 None math.inf"),
    "tol": words("-1 math.nan math.inf '0' None 10**400 True np.array([0.1]) 1j"),
    "refine": words("'search' True ['local-search'] np.array(['local-search']) 0"),
    "n_consensus": words("0 -1 2.5 None"),
    "smoothing": words("-1 math.nan math.inf None '1e-3' 10**400 -5e-324 5e-324 1e-300 1e300"),
    "engine": words("'cuda' None 5 CpuBackend '' ['cpu']"),
    "n_threads": words("0 -1 1.5 '2' 10**30 True np.array([1])"),
    "random_state": words("-1 'a' 1.5 2**40 np.random.default_rng(0) [1]"),
    "forgetting": words("0 -1 2 math.nan None '1' 10**400"),
    "sparse_output": words("1 None 'yes'"),
    "verbose": words("-1 None 0.5 '1'"),
}
"""Values that must be refused with a clear error."""

GOOD_WEIGHTS = [
    *[
        "np.ones(N)",
        "np.arange(N) + 1",
        "np.arange(N + 1)[1:]",
        "np.linspace(0.1, 1, N)",
        "[1] * N",
        "2",
        "0.5",
        "True",
    ],
    *["np.full(N, 1e-30)", "np.full(N, 1e29)", "np.full(N, 1e30)", "np.geomspace(1e-30, 1e30, N)"],
    *["np.arange(N, 0, -1)", "np.ones(2 * N)[::2]", "np.ones(N, dtype='float32')", "pd.Series(np.ones(N))"],
    *["np.arange(N)", "np.arange(N) % 2", "np.linspace(0, 1, N)", "(np.arange(N) == 0) * 1.0"],
]
BAD_WEIGHTS = [
    *["np.full(N, 5e-324)", "np.full(N, 1e-300)", "np.full(N, 1e31)", "np.geomspace(1e-320, 1, N)", "np.zeros(N)", "0"],
    *["np.full(N, np.nan)", "np.full(N, np.inf)", "-np.ones(N)", "np.full(N, None)", "1j * np.ones(N)", "{}"],
    *["np.ones(N + 1)", "np.ones(N - 1)", "np.ones((N, 1))", "'weights'", "['a'] * N", "[[1]] * N", "[10**400] * N"],
]
"""Valid and invalid weights of the rows. ``N`` is the number of rows."""
