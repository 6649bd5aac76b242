"""Functions with the same bits on every processor: their errors against exact values, and their special cases."""

import numpy as np
import pytest
from mpmath import mp, mpf

from onmf.functions import exp, expm1, log, log1p, log_gamma, matrix_product, power, xlogy
from onmf.kernels.steps import WIDTH, score_rows

TINY, LARGEST = 5e-324, np.finfo(np.float64).max
POWERS = (-3.0, -1.7, -0.5, 1e-3, 0.3, 2 / 3, 1.5, 2.2, 17.0, 700.0)


def around(*places, number=400):
    """Numbers near these places, at all distances."""
    rng = np.random.default_rng(0)
    apart = 10.0 ** rng.uniform(-18, -0.5, (len(places), number)) * rng.choice([-1, 1], (len(places), number))
    return (np.array(places)[:, None] * (1 + apart) + (np.array(places)[:, None] == 0) * apart).ravel()


def everywhere(number=2000):
    """Positive numbers of all exponents, subnormal ones too."""
    rng = np.random.default_rng(1)
    bits = np.concatenate([rng.integers(1, 0x7FEFFFFFFFFFFFFF, number), rng.integers(1, 1 << 52, number // 4)])
    return np.concatenate([bits.view(np.float64), [TINY, LARGEST, 2.0**-1022, 0.5, 1.0, 2.0]])


def uniform(low, high, number=2000):
    return np.random.default_rng(2).uniform(low, high, number)


def largest_error(function, exact, x):
    """In units in the last place."""
    errors = []
    with mp.workprec(300):
        for number, found in zip(x, function(x), strict=True):
            right = exact(mpf(float(number)))
            unit = mpf(float(np.spacing(abs(float(right)))))
            errors.append(
                0.0 if abs(right) > LARGEST and np.isinf(found) else float(abs(mpf(float(found)) - right) / unit)
            )
    return max(errors)


RANGES = {  # where each function is tested, and its exact values
    log: (mp.log, [everywhere(), np.abs(around(1.0)), uniform(0.5, 2)]),
    log1p: (mp.log1p, [everywhere(), around(0.0), -1 + 10.0 ** uniform(-15.9, 0), uniform(-0.9, 3)]),
    exp: (mp.exp, [uniform(-745, 709.7), around(0.0, 1.0, -1.0, np.log(2) / 2)]),
    expm1: (mp.expm1, [uniform(-70, 709.7), around(0.0, np.log(2) / 2), uniform(-1.5, 1.5), uniform(34, 40)]),
    log_gamma: (mp.loggamma, [uniform(1e-3, 20), around(1.0, 2.0, 12.0), 10.0 ** uniform(-300, 305)]),
}


@pytest.mark.parametrize("function", RANGES, ids=lambda function: function.__name__)
def test_less_than_one_unit_in_the_last_place(function):
    exact, parts = RANGES[function]
    assert largest_error(function, exact, np.concatenate(parts)) < 1


@pytest.mark.parametrize("exponent", POWERS)
def test_powers_to_less_than_one_unit_in_the_last_place(exponent):
    x = np.concatenate([everywhere(500), np.abs(around(1.0)), uniform(0.5, 2, 500), np.arange(1.0, 200)])
    x = x[np.abs(np.log(x)) * abs(exponent) < 700]
    assert largest_error(lambda x: power(x, exponent), lambda x: x ** mpf(exponent), x) < 1


@pytest.mark.parametrize(
    ("function", "cases"),
    [
        (log, {0.0: -np.inf, 1.0: 0.0, np.inf: np.inf, -1.0: np.nan, np.nan: np.nan}),
        (log1p, {-1.0: -np.inf, 0.0: 0.0, np.inf: np.inf, -2.0: np.nan, np.nan: np.nan, TINY: TINY}),
        (exp, {-np.inf: 0.0, -800.0: 0.0, 0.0: 1.0, 710.0: np.inf, np.inf: np.inf, np.nan: np.nan}),
        (expm1, {-np.inf: -1.0, -80.0: -1.0, 0.0: 0.0, np.inf: np.inf, np.nan: np.nan, TINY: TINY}),
        (log_gamma, {0.0: np.inf, 1.0: 0.0, 2.0: 0.0, np.inf: np.inf, -0.5: np.nan, np.nan: np.nan}),
        (lambda x: power(x, 0.3), {0.0: 0.0, 1.0: 1.0, np.inf: np.inf, -1.0: np.nan, np.nan: np.nan}),
        (lambda x: power(x, -0.3), {0.0: np.inf, 1.0: 1.0, np.inf: 0.0}),
        (lambda x: power(x, 0.0), {0.0: 1.0, 3.0: 1.0, np.inf: 1.0}),
        (lambda x: power(x, -1.0), {0.0: np.inf, 4.0: 0.25}),
        (lambda x: xlogy(x, x), {0.0: 0.0, 1.0: 0.0}),
        (lambda x: xlogy(x, np.zeros_like(x)), {0.0: 0.0, 1.0: -np.inf}),
    ],
)
def test_special_cases(function, cases):
    """None of them warns: warnings are errors in tests."""
    assert np.array_equal(function(np.array(list(cases))), list(cases.values()), equal_nan=True)
    for x, expected in cases.items():
        assert np.array_equal(function(np.float64(x)), expected, equal_nan=True)


@pytest.mark.parametrize("function", [log, log1p, exp, expm1, log_gamma, lambda x: power(x, 1.3)])
def test_a_number_has_the_same_bits_alone_and_in_an_array(function):
    x = uniform(0.01, 30, 77)
    assert [function(number) for number in x] == function(x).tolist() == function(x[::-1])[::-1].tolist()


def test_sums_are_added_in_a_fixed_order():
    rng = np.random.default_rng(0)
    A, B = rng.random((3, 5, 7)), rng.random((7, 4))
    expected = np.zeros((3, 5, 4))
    for s in range(7):
        expected += A[..., s, None] * B[s]
    assert np.array_equal(matrix_product(A, B), expected)
    assert matrix_product(np.zeros((2, 0)), np.zeros((0, 3))).tolist() == [[0.0] * 3] * 2


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.uint8, np.int16])
@pytest.mark.parametrize("p", [3, 8, 29])
def test_scores_of_arrays_are_added_by_lanes(dtype, p):
    """Lane l adds the products of the entries l, l + 8, …; then the lanes are added, and the entries that are left."""
    rng = np.random.default_rng(0)
    X, B, starts = (100 * rng.random((4, p))).astype(dtype), rng.random((2, p)), rng.random(2)
    scores = np.empty((4, 2))
    score_rows(*X, B, starts, scores)
    for x, row in zip(X, scores, strict=True):
        for b, start, found in zip(B, starts, row, strict=True):
            products, lanes = np.float64(x) * b, np.zeros(WIDTH)
            whole = p - p % WIDTH
            for some in products[:whole].reshape(-1, WIDTH):
                lanes += some
            while len(lanes) > 1:
                lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
            assert found == sum(products[whole:], start=lanes[0]) + start
