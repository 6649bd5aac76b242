"""Rules for values read from a file: what each value must be, in code and in words."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

LARGEST = float(np.finfo(np.float64).max)


class Rule(NamedTuple):
    """A test for a value, its description for error messages, and whether the value is required."""

    fits: Callable[[Any], bool]
    description: str
    required: bool = True


def require(valid: object, message: str) -> None:
    """Raise ValueError with the message if something is not valid."""
    if not valid:
        raise ValueError(message)


def check(rules: Mapping[str, Rule], values: Mapping[str, Any], prefix: str = "", *, closed: bool = False) -> None:
    """Refuse values that are missing or break their rule, and if ``closed`` those without one, named with a prefix."""
    if closed and (unknown := sorted(set(values) - set(rules))):
        raise ValueError(f"its {prefix}{unknown[0]} is {abbreviate(values[unknown[0]])}, not a known parameter")
    for name, rule in rules.items():
        require(name in values or not rule.required, f"{name!r} is missing")
        if name in values and not rule.fits(values[name]):
            raise ValueError(f"its {prefix}{name} is {abbreviate(values[name])}, not {rule.description}")


def number(low: float = -math.inf, high: float = math.inf, *, infinite: bool = False) -> Rule:
    """A number in an interval, never NaN; finite unless ``infinite``."""

    def fits(value: Any) -> bool:
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high
        return is_number and (abs(value) <= LARGEST or (infinite and isinstance(value, float)))

    return Rule(fits, f"a number from {low:g} to {high:g}" if low > -math.inf else "a number")


def integer(low: int = 0, high: int = 2**53) -> Rule:
    """An integer in an interval."""
    in_range = number(low, high).fits
    return Rule(lambda value: isinstance(value, int) and in_range(value), f"an integer from {low} to {high}")


def one_of(*names: str | None) -> Rule:
    """One of the given names."""
    return Rule(lambda value: isinstance(value, str | None) and value in names, f"one of {', '.join(map(repr, names))}")


def either(*rules: Rule) -> Rule:
    """A value that fits one of the rules."""
    return Rule(lambda value: any(rule.fits(value) for rule in rules), ", or ".join(rule.description for rule in rules))


def optional(rule: Rule) -> Rule:
    """The same rule for a value that may be missing."""
    return rule._replace(required=False)


def strings(length: int | None = None, *, distinct: bool = False) -> Rule:
    """A list of strings, of a given length if there is one."""

    def fits(value: Any) -> bool:
        is_list = isinstance(value, list) and all(isinstance(text, str) for text in value)
        return is_list and length in (None, len(value)) and not (distinct and len(set(value)) < len(value))

    return Rule(fits, f"a list of {'' if length is None else f'{length} '}{'different ' if distinct else ''}strings")


def of_type(kind: type, description: str) -> Rule:
    """Any value of a type."""
    return Rule(lambda value: isinstance(value, kind), description)


def json_object(rules: Mapping[str, Rule], *, closed: bool = False) -> Rule:
    """A JSON object whose values fit the rules; if ``closed``, it has no other values."""

    def fits(value: Any) -> bool:
        known = isinstance(value, dict) and (not closed or set(value) <= set(rules))
        return known and all(
            rule.fits(value[name]) if name in value else not rule.required for name, rule in rules.items()
        )

    members = "; ".join(f"{name}: {rule.description}" for name, rule in rules.items())
    return Rule(fits, f"a JSON object ({members})")


def array(types: tuple[str, ...], *shape: int | None, low: float = -LARGEST, high: float = LARGEST) -> Rule:
    """An array of one of the types, with values in an interval and never NaN; an axis None has any length."""

    def fits(value: Any) -> bool:
        if not isinstance(value, np.ndarray) or value.dtype.name not in types or value.ndim != len(shape):
            return False
        fitting = all(length in (None, found) for length, found in zip(shape, value.shape, strict=True))
        return fitting and (not value.size or low <= value.min().item() <= value.max().item() <= high)

    lengths = str(shape).replace("None", "any")
    span = "finite values" if (low, high) == (-LARGEST, LARGEST) else f"values from {low:g} to {high:g}"
    return Rule(fits, f"an array of {' or '.join(types)} with the shape {lengths} and {span}")


def filled(rule: Rule) -> Rule:
    """The same rule for an array that must not be empty."""
    return rule._replace(fits=lambda value: rule.fits(value) and value.size > 0)


def is_array(value: Any, kinds: str) -> bool:
    """Whether a value is an array of the given dtype kinds, with floats small enough to be squared."""
    is_one = isinstance(value, np.ndarray) and value.dtype.kind in kinds
    return is_one and (value.dtype.kind != "f" or bool((np.abs(value) < 1e100).all()))


def some_names(names: Any, most: int = 5, between: str = ", ") -> str:
    """The first few names of a sequence or an array, and how many more there are."""
    return between.join(map(str, names[:most])) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def abbreviate(value: Any) -> str:
    """A value for an error message, cut to 60 characters."""
    if isinstance(value, np.ndarray):
        numbers = value.size and value.dtype.kind in "biuf"
        span = f" and values from {value.min():g} to {value.max():g}" if numbers else ""
        return f"an array of {value.dtype} with the shape {value.shape}{span}"
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "…"


NULL, STRING, FLAG = one_of(None), of_type(str, "a string"), of_type(bool, "true or false")  # Common rules
