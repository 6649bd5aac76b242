"""One rule for the numbers and names of clusters, in everything that commands write and print."""

import csv
import json
import re

import numpy as np
import pytest

import onmf
from conftest import command
from onmf.datasets import make_counts, make_scene
from onmf.image.files import read_plane


def documents(folder):
    words = [f"w{chr(97 + i)}{chr(97 + j)}" for i in range(5) for j in range(12)]
    found = make_counts(120, 60, 4, random_state=3)
    lines = [" ".join(np.repeat(words, row)) for row in found.X.toarray()]
    (folder / "texts.txt").write_text("\n".join(lines) + "\n")
    return folder / "texts.txt", ("--max-df", "1.0")


def image(folder):
    scene = make_scene(12, 20, 30, 4, random_state=1)
    np.save(folder / "scene.npy", scene.X.reshape(12, 20, 30))
    return folder / "scene.npy", ()


def cells(folder):
    found = make_counts(120, 60, 4, random_state=3)
    rows = ["," + ",".join(f"GENE{j}" for j in range(60))]
    rows += [f"CELL{i}," + ",".join(map(str, row)) for i, row in enumerate(found.X.toarray())]
    (folder / "cells.csv").write_text("\n".join(rows) + "\n")
    return folder / "cells.csv", ("--orientation", "cells-in-rows")


DOORS = {"documents": documents, "image": image, "cells": cells}
FIRST = {"documents": 1, "image": 1, "cells": 0}
"""Cells count from 0, as scanpy does: see docs/development/decisions.md."""


@pytest.fixture(scope="module", params=DOORS)
def door(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    source, options = DOORS[request.param](folder)
    options = [*options, "--no-report"] if request.param == "cells" else options
    ran = command(request.param, source, "-k", 4, "--seed", 0, "--out", folder / "out", *options)
    assert ran.returncode == 0, ran.stderr
    return request.param, folder / "out", source, ran.stdout


def rows(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def by_cluster(kind, out):
    """The rows of each cluster, by number, as the main file of a kind gives them."""
    if kind == "image":
        values = read_plane(out / "map.tif")
        return dict(zip(*(found.tolist() for found in np.unique(values[values > 0], return_counts=True)), strict=True))
    numbers, sizes = np.unique([int(row["cluster"]) for row in rows(out / "assignments.csv")], return_counts=True)
    return dict(zip(numbers.tolist(), sizes.tolist(), strict=True))


def test_all_speak_of_the_same_clusters(door):
    kind, out, _, printed = door
    sizes = by_cluster(kind, out)
    assert list(sizes) == list(range(FIRST[kind], FIRST[kind] + 4))
    assert list(sizes.values()) == sorted(sizes.values(), reverse=True)
    assert len(set(sizes.values())) > 1, "otherwise this test says nothing"
    shown = json.loads(command("show", out / "model.onmf", "--json").stdout)["clusters"]
    assert {row["cluster"]: row["size"] for row in shown} == sizes
    names = {row["cluster"]: row["name"] for row in shown}
    assert len(set(names.values())) == 4
    model = onmf.load(out / "model.onmf")
    assert np.bincount(model.labels_).tolist() == list(sizes.values()), "in Python, from 0"
    assert model.extra_["names"] == list(names.values())
    for number, name in names.items():
        assert re.search(rf"^ *{number} .*{re.escape(name)}", printed, re.MULTILINE), printed
    listed = json.loads((out / "summary.json").read_text())["clusters"]
    for table in (rows(out / "clusters.csv"), listed):
        assert {int(row["cluster"]): (row["name"], int(row["size"])) for row in table} == {
            number: (names[number], size) for number, size in sizes.items()
        }
    if kind != "image":
        assert {int(row["cluster"]): row["name"] for row in rows(out / "assignments.csv")} == names


def test_predict_and_rename_use_these_numbers(door, tmp_path):
    kind, out, source, _ = door
    path = tmp_path / "model.onmf"
    path.write_bytes((out / "model.onmf").read_bytes())
    second = FIRST[kind] + 1
    ran = command("rename", path, second, "the second")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert f"{second}  the second" in ran.stdout
    assert "the second" in command("show", path).stdout
    assert onmf.load(path).extra_["names"][1] == "the second"
    found = json.loads(command("predict", path, source, "--json").stdout)
    if kind == "image":
        assert {row["cluster"]: row["size"] for row in found["clusters"]} == by_cluster(kind, out)
        assert {row["cluster"]: row["name"] for row in found["clusters"]}[second] == "the second"
    else:
        assert {row["name"] for row in found if row["cluster"] == second} == {"the second"}
        assert [str(row["cluster"]) for row in found] == [row["cluster"] for row in rows(out / "assignments.csv")]


def test_the_report_counts_alike(door):
    kind, out, _, _ = door
    if kind == "cells":
        pytest.skip("the numbers of cells in reports are tested in test_report_cells.py")
    page = (out / "report.html").read_text(encoding="utf-8")
    for number, name in enumerate(onmf.load(out / "model.onmf").extra_["names"], 1):
        assert name in page
        if kind == "documents":
            assert f'"number":"{number}","name":"{name}"' in page
