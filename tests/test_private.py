"""--no-text: nothing that is written holds a text, or the name of a row or a file."""

import base64
import json
import re
import zipfile
import zlib

import numpy as np
import pytest

import onmf
from conftest import command
from onmf.datasets import make_counts, make_scene

SECRET = "s3cr3t"  # no word, so that it is in no vocabulary
K = 3
COUNTS = make_counts(60, 30, K, length=80, random_state=0).X.toarray()


def documents(folder):
    """Documents whose texts and names are secret, and one that cannot be clustered."""
    words = [f"w{chr(97 + j // 26)}{chr(97 + j % 26)}" for j in range(30)]
    texts = [f"{SECRET}-{i} " + " ".join(np.repeat(words, row)) for i, row in enumerate([*COUNTS, 0 * COUNTS[0]])]
    lines = [json.dumps({"id": f"{SECRET} {i}", "text": text}) for i, text in enumerate(texts)]
    path = folder / f"{SECRET}.jsonl"
    path.write_text("\n".join(lines))
    return path, ["--id", "id"]


def table(folder):
    path = folder / f"{SECRET}.csv"
    rows = [["name", *(f"GENE{j}" for j in range(30))], *([f"{SECRET} {i}", *row] for i, row in enumerate(COUNTS))]
    path.write_text("\n".join(",".join(map(str, row)) for row in [*rows, [f"{SECRET} empty", *30 * [0]]]) + "\n")
    return path, []


def cells(folder):
    return table(folder)[0], ["--orientation", "cells-in-rows"]


def cells_in_anndata(folder):
    """A file that has more than counts, and that a result would otherwise copy."""
    anndata = pytest.importorskip("anndata")
    made = anndata.AnnData(COUNTS)
    made.obs_names = [f"{SECRET} {i}" for i in range(60)]
    made.obs["patient"] = SECRET
    made.write_h5ad(folder / f"{SECRET}.h5ad")
    return folder / f"{SECRET}.h5ad", []


def image(folder):
    path = folder / f"{SECRET}.npz"
    np.savez(path, **{SECRET: make_scene(6, 10, 20, K, random_state=1).X.reshape(6, 10, 20)})
    return path, ["--variable", SECRET]


KINDS = {
    "documents": ("documents", documents),
    "table": ("table", table),
    "cells": ("cells", cells),
    "cells in AnnData": ("cells", cells_in_anndata),
    "image": ("image", image),
}


def contents(path):
    """The bytes of a file, also of what is packed in it."""
    whole = path.read_bytes()
    yield whole
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as packed:
            yield from (packed.read(name) for name in packed.namelist())
    if path.suffix == ".html":
        for text in re.findall(rb'"([A-Za-z0-9+/]{8,}={0,2})"', whole):
            if len(text) % 4 == 0:
                content = base64.b64decode(text)
                yield content
                try:
                    yield zlib.decompress(content)
                except zlib.error:
                    continue
    if path.suffix == ".h5ad":
        adata = pytest.importorskip("anndata").read_h5ad(path)
        yield " ".join([*adata.obs_names, str(adata.obs), str(adata.uns)]).encode()


def told(folder):
    """The files under a folder that tell the secret, in their names or inside."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    secret = SECRET.encode()
    return {path.name for path in files if SECRET in path.name or any(secret in part for part in contents(path))}


@pytest.mark.parametrize("name", KINDS)
def test_no_file_tells_a_name_or_a_text(name, tmp_path):
    kind, write = KINDS[name]
    (tmp_path / SECRET).mkdir()
    path, given = write(tmp_path / SECRET)
    quick = [] if kind == "image" else ["--quick"]
    for flags, folder in (([], "plain"), (["--no-text"], "private")):
        ran = command(kind, path, *given, "-k", K, *quick, *flags, "--out", tmp_path / folder)
        assert ran.returncode == 0, ran.stderr
    assert {"report.html", "model.onmf", "summary.json"} & told(tmp_path / "plain"), "the search finds what is there"
    if kind != "image":
        assert {"report.html", "assignments.csv", "summary.json"} <= told(tmp_path / "plain")
    assert told(tmp_path / "private") == set()
    one, other = (onmf.load(tmp_path / folder / "model.onmf") for folder in ("plain", "private"))
    assert one.labels_.tolist() == other.labels_.tolist()
    assert one.extra_["names"] == other.extra_["names"]
    new = tmp_path / ("new" if kind == "image" else "new.csv")
    ran = command("predict", tmp_path / "private" / "model.onmf", path, *given, "--no-text", "--out", new)
    assert ran.returncode == 0, ran.stderr
    if kind == "image":
        assert told(new) == set()
    else:
        lines = new.read_text().splitlines()
        assert SECRET not in "".join(lines)
        assert [line.split(",")[0] for line in lines[1:4]] == ["1", "2", "3"]


def test_what_was_noted_while_reading_is_said_only(tmp_path):
    for i, row in enumerate(COUNTS):
        (tmp_path / f"{i}.txt").write_text(" ".join(np.repeat([f"w{chr(97 + j)}x" for j in range(30)], row)))
    (tmp_path / f"{SECRET}.txt").write_bytes(bytes(range(256)) * 20)
    ran = command("documents", tmp_path, "-k", K, "--quick", "--no-report", "--no-text", "--out", tmp_path / "out")
    assert ran.returncode == 0, ran.stderr
    assert SECRET in ran.stderr, "one file is no text"
    assert told(tmp_path / "out") == set()


def test_shards_would_keep_them(tmp_path):
    path, given = documents(tmp_path)
    ran = command("documents", path, *given, "-k", K, "--no-text", "--shards", tmp_path / "shards")
    assert ran.returncode != 0
    assert "--shards keeps the names and the beginnings of documents in its folder" in ran.stderr
    assert not (tmp_path / "shards").exists()
