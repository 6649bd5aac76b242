"""The registry of kinds of models."""

import json

import pytest

import onmf
from conftest import command
from onmf.io.rules import Rule
from onmf.kinds import KINDS, UNKNOWN, Kind, get_kind, resolve


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_can_predict(name):
    assert callable(resolve(get_kind(name).predict))


def test_kinds_that_are_not_registered():
    assert get_kind("songs") is UNKNOWN


def sing(model, request):
    print(f"{len(model.cluster_centers_)} choirs sing {request.path}")


def in_tune(extra):
    if extra["pitch"] != "a":
        raise ValueError("its pitch is wrong")


SONGS = Kind(
    predict=f"{__name__}:sing",
    rules=lambda k, p: {"pitch": Rule(lambda value: isinstance(value, str), "a text")},
    check=in_tune,
    feature_names=lambda extra: ["do", "re"],
)


def test_a_new_kind_takes_one_entry(tmp_path, monkeypatch):
    monkeypatch.setitem(KINDS, "songs", f"{__name__}:SONGS")
    path = tmp_path / "model.onmf"
    model = onmf.ONMF(2).fit([[1, 0], [0, 1]])
    for pitch, message in (
        ({}, "'pitch' is missing"),
        ({"pitch": 3}, "not a text"),
        ({"pitch": "b"}, "pitch is wrong"),
    ):
        with pytest.raises(ValueError, match=message):
            model.save(path, extra={"kind": "songs", **pitch})
    model.save(path, extra={"kind": "songs", "pitch": "a"})
    assert onmf.load(path).extra_ == {"kind": "songs", "pitch": "a"}
    assert command("predict", path, "carols").stdout == "2 choirs sing carols\n"
    clusters = json.loads(command("show", path, "--json").stdout)["clusters"]
    assert sorted(cluster["distinctive"] for cluster in clusters) == ["do", "re"]
