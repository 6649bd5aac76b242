"""Logarithm, exponential, power and log-gamma function, with the same bits on every processor.

Sums, products, quotients and square roots have the same bits everywhere, by the IEEE standard. The functions of C and
NumPy do not: they differ in the last digit from one instruction set to another, and a label may hang on that. Those
below are made of exact operations alone, in a fixed order. Each is off by less than one unit in the last place. They
have few branches, so that loops over them are vectorised.

A number x is 2^e · m, with m between √½ and √2, and with s = (m − 1) / (m + 1)

    log x = e log 2 + 2s + ⅔ s³ + ⅖ s⁵ + …,    e^x = 2^n e^r,  x = n log 2 + r

Powers and log-gamma need more digits of the logarithm than float64 has: it then comes as a *pair*, the sum of a number
and a much smaller one.

References: FDLIBM (e_log.c, e_exp.c) for the polynomials; Dekker, A floating-point technique for extending the
available precision (1971), for pairs.
"""

from typing import Any

import numpy as np

from .jit import jit_inlined as jit

SQRT_HALF_BITS = 0x3FE6A09E667F3BCD  # the bits of √½
SMALLEST_NORMAL = 2.0**-1022
MAX_QUOTIENT = 1e300
LOG2_HIGH, LOG2_LOW = 0.6931467056274414, 4.7493250390316726e-07  # times an exponent, the former is exact
INVERSE_LOG2 = 1.4426950408889634
TWO_THIRDS, TWO_THIRDS_LOW = 0.6666666666666666, 3.700743415417188e-17
SPLITTER = 2.0**27 + 1  # splits a number into halves of its digits
ROUNDING = 1.5 * 2.0**52  # plus this, a number is rounded, and its last bits are those of the integer
ROUNDING_BITS = 0x4338000000000000  # the bits of that
ONE_EXPONENT = 1023  # the stored exponent of 1
LARGEST_EXPONENT = 750.0  # beyond, e^x is infinite or zero

SLOPE, SLOPE_LOW = 0.42278433509846713, 4.942915152430645e-18  # of log Γ at 2: 1 − γ
BEND, BEND_LOW = 0.3224670334241132, 1.520336175199238e-17  # half of its second derivative: (ζ(2) − 1) / 2
ZETAS = (
    *(-0.0673523010531981, 0.020580808427784546, -0.007385551028673986, 0.0028905103307415234, -0.001192753911703261),
    *(0.0005096695247430425, -0.00022315475845357939, 9.945751278180853e-05),
    *(-4.492623673813314e-05, 2.050721277567069e-05, -9.439488275268397e-06, 4.374866789907488e-06),
    *(-2.039215753801366e-06, 9.55141213040742e-07, -4.492469198764566e-07, 2.1207184805554665e-07),
    *(-1.0043224823968099e-07, 4.7698101693639804e-08, -2.2711094608943164e-08, 1.0838659214896955e-08),
    *(-5.183475041970047e-09, 2.4836745438024785e-09, -1.1921401405860912e-09, 5.731367241678862e-10),
)
"""(−1)^k (ζ(k) − 1) / k for k = 3, 4, …: the Taylor series of log Γ at 2 after its first two terms."""
STIRLING = 12.0  # from here on, Stirling's series has all digits
HALF_LOG_2PI = 0.9189385332046728
HUGE = 1e250  # arguments of log Γ above this are scaled, or the halves of their digits overflow


@jit
def split(x: float) -> tuple[float, float]:
    """The exponent e of a normal number x > 0, and m between √½ and √2."""
    bits = np.float64(x).view(np.int64)
    e = (bits - np.int64(SQRT_HALF_BITS)) >> 52
    return np.float64(e), np.int64(bits - (e << 52)).view(np.float64)


@jit
def normal(x: float) -> tuple[float, float]:
    """A normal number for any x > 0, and the power of two by which x is larger."""
    small = x < SMALLEST_NORMAL
    return x * 2.0**54 if small else x, -54.0 if small else -0.0


@jit
def log_and(x: float, more: float, power: float) -> float:
    """Log (2^power x) + more, for a normal number x > 0 and a ``more`` that is much smaller."""
    e, m = split(x)
    e += power
    f = m - 1.0
    s = f / (2.0 + f)
    z = s * s
    high = 0.2222219843214978396 + z * (0.1818357216161805012 + z * (0.1531383769920937332 + z * 0.1479819860511658591))
    series = z * (0.6666666666666735130 + z * (0.3999999999940941908 + z * (0.2857142874366239149 + z * high)))
    half = 0.5 * f * f
    return e * LOG2_HIGH - ((half - (s * (half + series) + (e * LOG2_LOW + more))) - f)


@jit
def log(x: float) -> float:
    """Log x: −∞ for 0, NaN below."""
    if 0.0 < x < np.inf:
        x, power = normal(x)
        return log_and(x, 0.0, power)
    return x if x > 0.0 else (-np.inf if x == 0.0 else np.nan)


@jit
def log1p(x: float) -> float:
    """Log (1 + x), to the last digits of a small x, too."""
    u = 1.0 + x
    if 0.0 < u < np.inf:
        return log1p_of_finite(x)
    return u if u > 0.0 else (-np.inf if u == 0.0 else np.nan)


@jit
def log1p_of_quotient(x: float) -> float:
    """The same for x ≥ 0 without a branch; a quotient that has become infinite counts as 1e300."""
    return log1p_of_finite(min(x, MAX_QUOTIENT))


@jit
def log1p_of_finite(x: float) -> float:
    """The same for −1 < x < ∞."""
    u = 1.0 + x
    return log_and(u, (x - (u - 1.0)) / u, -0.0)


@jit
def exp_parts(x: float, more: float) -> tuple[Any, float, float, float]:
    """Integer n, r as a difference, and t: e^(x + more) = 2^n e^r, e^r − 1 = r + r c / (2 − c), c = r − t.

    ``more`` is much smaller than 1.
    """
    x = LARGEST_EXPONENT if x > LARGEST_EXPONENT else (-LARGEST_EXPONENT if x < -LARGEST_EXPONENT else x)
    rounded = x * INVERSE_LOG2 + ROUNDING
    n = rounded - ROUNDING
    high, low = x - n * LOG2_HIGH, n * LOG2_LOW - more
    r = high - low
    z = r * r
    series = 6.61375632143793436117e-05 + z * (-1.65339022054652515390e-06 + z * 4.13813679705723846039e-08)
    t = z * (0.166666666666666019037 + z * (-0.00277777777770155933842 + z * series))
    return np.float64(rounded).view(np.int64) - np.int64(ROUNDING_BITS), high, low, t


@jit
def times_power_of_two(x: float, n: int) -> float:
    """2^n x, in two steps: a power of two alone may leave float64."""
    half = n >> 1
    return x * power_of_two(half) * power_of_two(n - half)


@jit
def power_of_two(n: int) -> float:
    """2^n of a small integer."""
    return np.int64((n + ONE_EXPONENT) << 52).view(np.float64)


@jit
def exp(x: float) -> float:
    """e^x."""
    return exp_of_pair(x, 0.0)


@jit
def exp_of_pair(x: float, more: float) -> float:
    """e^(x + more), for ``more`` much smaller than 1."""
    n, high, low, t = exp_parts(x, more)
    r = high - low
    c = r - t
    return times_power_of_two(1.0 - ((low - (r * c) / (2.0 - c)) - high), n)


@jit
def expm1(x: float) -> float:
    """e^x − 1, to the last digits of a small x, too."""
    n, high, low, t = exp_parts(-60.0 if x < -60.0 else x, 0.0)
    r = high - low
    c = r - t
    # r c / (2 − c) = r² / 2 + a term of third order, which has fewer digits to lose
    square = 0.5 * r * r + (r * ((high - r) - low) + r * (r * c - 2.0 * t) / (2.0 * (2.0 - c)))
    one = power_of_two(-n)
    less = 1.0 - one
    total = less + high
    rounded = ((less - total) + high) + ((1.0 - less) - one)
    return times_power_of_two(total + (rounded - (low - square)), n)


@jit
def add(x: float, y: float) -> tuple[float, float]:
    """The sum as a pair."""
    total = x + y
    other = total - x
    return total, (x - (total - other)) + (y - other)


@jit
def multiply(x: float, y: float) -> tuple[float, float]:
    """The product as a pair."""
    u, v = x * SPLITTER, y * SPLITTER
    a, b = u - (u - x), v - (v - y)
    c, d = x - a, y - b
    product = x * y
    return product, ((a * b - product) + a * d + c * b) + c * d


@jit
def log_pair(x: float, more: float) -> tuple[float, float]:
    """Log x + more as a pair, for x > 0."""
    x, power = normal(x)
    e, m = split(x)
    e += power
    f, high = m - 1.0, m + 1.0
    s = f / high
    p, q = multiply(s, high)
    s_low = (((f - p) - q) - s * (m - (high - 1.0))) / high
    z, z_low = multiply(s, s)
    z_low += 2.0 * s * s_low
    cube, cube_low = multiply(s, z)
    cube_low += s * z_low + s_low * z
    third, third_low = multiply(cube, TWO_THIRDS)
    third_low += cube * TWO_THIRDS_LOW + cube_low * TWO_THIRDS
    high = 2 / 19 + z * (2 / 21 + z * (2 / 23 + z * (2 / 25 + z * (2 / 27))))
    series = 2 / 5 + z * (2 / 7 + z * (2 / 9 + z * (2 / 11 + z * (2 / 13 + z * (2 / 15 + z * (2 / 17 + z * high))))))
    first, first_low = add(e * LOG2_HIGH, 2.0 * s)
    second, second_low = add(first, third)
    rest = (cube * z) * series + (third_low + 2.0 * s_low)
    return add(second, (e * LOG2_LOW + rest) + ((first_low + second_low) + more))


@jit
def power(x: float, y: float) -> float:
    """x^y for x ≥ 0."""
    if 0.0 < x < np.inf:
        high, low = log_pair(x, 0.0)
        exponent, more = multiply(high, y)
        return exp_of_pair(exponent, more + low * y)
    if y == 0.0:
        return 1.0
    return np.nan if not x >= 0.0 else (np.inf if (x > 0.0) == (y > 0.0) else 0.0)


@jit
def log_gamma(x: float) -> float:
    """Log Γ(x) for x > 0; NaN elsewhere, ∞ for 0."""
    if not 0.0 < x < np.inf:
        return np.inf if x == 0.0 or x == np.inf else np.nan
    if x >= STIRLING:
        unit = 2.0**-100 if x > HUGE else 1.0
        inverse = 1.0 / x
        w = inverse * inverse
        high, low = log_pair(x, 0.0)
        first, first_low = multiply(x * unit, high)
        second, second_low = add(first, -x * unit)
        rest = (HALF_LOG_2PI - 0.5 * high + stirling(w) * inverse) * unit
        return (second + (rest + (x * unit * low + (first_low + second_low)))) / unit
    # Γ(x) = (x − 1) … (x − n) Γ(2 + t), or Γ(2 + t) / (1 + t), or Γ(2 + t) / (t (1 + t))
    n = np.floor(x - 1.5)
    t = x - (n + 2.0) if x >= 1.5 else (x - 1.0 if x >= 0.5 else x)
    square, square_low = multiply(t, t)
    bent, bent_low = multiply(square, BEND)
    total, low = multiply(t, SLOPE)
    total, more = add(total, bent)
    tail = 0.0
    for c in range(len(ZETAS) - 1, -1, -1):
        tail = tail * t + ZETAS[c]
    low += (more + bent_low) + (t * SLOPE_LOW + square_low * BEND + square * BEND_LOW) + square * t * tail
    if x >= 1.5:
        factor, factor_low = 1.0, 0.0
        for i in range(1, int(n) + 1):
            factor, after = multiply(factor, x - i)
            factor_low = factor_low * (x - i) + after
        logs, logs_low = log_pair(factor, factor_low / factor)
        total, more = add(total, logs)
        return total + (low + logs_low + more)
    u = 1.0 + t
    logs, logs_low = log_pair(u, (t - (u - 1.0)) / u)
    total, more = add(total, -logs)
    low += more - logs_low
    if x < 0.5:
        logs, logs_low = log_pair(x, 0.0)
        total, more = add(total, -logs)
        low += more - logs_low
    return total + low


@jit
def stirling(w: float) -> float:
    """Stirling's series, times x, for w = 1 / x²."""
    higher = 0.0008417508417508417 + w * (-0.0019175269175269176 + w * (0.00641025641025641 - w * 0.029550653594771242))
    return 1 / 12 + w * (-1 / 360 + w * (1 / 1260 + w * (-1 / 1680 + w * higher)))


# The same over arrays of one axis.


@jit
def map_log(x: Any, out: Any) -> None:
    """Logarithms."""
    for i in range(len(x)):
        out[i] = log(x[i])


@jit
def map_log1p(x: Any, out: Any) -> None:
    """Logarithms of 1 + x."""
    for i in range(len(x)):
        out[i] = log1p(x[i])


@jit
def map_exp(x: Any, out: Any) -> None:
    """Exponentials."""
    for i in range(len(x)):
        out[i] = exp(x[i])


@jit
def map_expm1(x: Any, out: Any) -> None:
    """Exponentials minus 1."""
    for i in range(len(x)):
        out[i] = expm1(x[i])


@jit
def map_log_gamma(x: Any, out: Any) -> None:
    """Logarithms of the gamma function."""
    for i in range(len(x)):
        out[i] = log_gamma(x[i])


@jit
def map_power(x: Any, out: Any, exponent: float) -> None:
    """Powers, all with one exponent."""
    for i in range(len(x)):
        out[i] = power(x[i], exponent)


@jit
def map_xlogy(x: Any, out: Any, y: Any) -> None:
    """Products of x and log y; 0 where x is."""
    for i in range(len(x)):
        out[i] = x[i] * log(y[i]) if x[i] != 0.0 else 0.0
