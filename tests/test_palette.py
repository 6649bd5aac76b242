"""The colours of groups, as different people see them."""

import numpy as np
import pytest

from onmf.image.figures import EXPECTED, colours
from onmf.plot import DISTINCT, distinct_colours, parts_of

SEEN_BY = {
    "most people": np.eye(3),
    "people without red cones": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "people without green cones": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
}
"""Matrices on linear RGB at full severity, from table 1 of Machado, Oliveira and Fernandes (2009)."""

LMS = [[0.41222147, 0.53633254, 0.05144599], [0.2119035, 0.68069955, 0.10739696], [0.08830246, 0.28171884, 0.6299787]]
LAB = [[0.210454, 0.793618, -0.004072], [1.977998, -2.428592, 0.450594], [0.025904, 0.782772, -0.808676]]
"""From linear RGB to OKLab (Ottosson 2020), where equal distances look about equally large."""


def linear(chosen):
    share = np.array([parts_of(colour) for colour in chosen]) / 255
    return np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)


def nearest(chosen, seen_by):
    """The smallest distance between two of the colours."""
    seen = np.clip(linear(chosen) @ np.transpose(SEEN_BY[seen_by]), 0, 1)
    lab = np.cbrt(seen @ np.transpose(LMS)) @ np.transpose(LAB)
    distances = np.linalg.norm(lab[:, None] - lab, axis=2)
    return distances[np.triu_indices(len(chosen), 1)].min()


def contrast(chosen, background):
    a, b = (linear(group) @ [0.2126, 0.7152, 0.0722] + 0.05 for group in (chosen, [background]))
    return np.maximum(a, b) / np.minimum(a, b)


@pytest.mark.parametrize("seen_by", SEEN_BY)
def test_colours_differ_for_everyone(seen_by):
    for number, least in ((12, 0.075), (20, 0.06), (60, 0.03)):
        assert nearest(distinct_colours(number), seen_by) > least, number
    assert nearest(sorted(set(EXPECTED.values())), seen_by) > 0.1
    assert nearest(colours(["tree", "water", "dirt", "road", *(f"cluster {i}" for i in range(8))]), seen_by) > 0.07


def test_colours_that_only_most_people_can_tell_apart_are_noticed():
    pair = ["#7f7f7f", "#009e73"]
    assert nearest(pair, "most people") > 0.1
    assert nearest(pair, "people without green cones") < 0.05


def test_colours_show_on_light_and_dark_pages():
    assert contrast(DISTINCT, "#ffffff").min() > 1.7
    assert contrast(DISTINCT, "#1d2125").min() > 2.1


def test_more_colours_repeat():
    assert distinct_colours(121) == [*DISTINCT, *DISTINCT, DISTINCT[0]]
    assert len(set(DISTINCT)) == 60
    assert parts_of("#0a10ff") == (10, 16, 255)
