"""The commands onmf documents, predict and show, as a new user would try them."""

import csv
import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

import onmf as package
from conftest import DATA, command, needs_posix, until
from onmf.cli import app
from onmf.datasets import docstring_texts
from onmf.io.model_file import read_model, write_model
from onmf.text import make_vectorizer, read

WRITTEN = ["assignments.csv", "clusters.csv", "model.onmf", "report.html", "summary.json"]
COLUMNS = ["id", "cluster", "name", "confidence", "runner_up", "scale", "margin", "surprise", "label"]
NEWSGROUPS = Path(DATA or ".", "text", "20_newsgroups_19997.tar.xz")


def onmf(*arguments, **options):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], **options)


def process(*arguments, python=("-m", "onmf"), **options):
    """Run onmf in a new process. Returns its output and exit status."""
    command = [sys.executable, *python, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


# As python -m onmf. At the end, a file gets the status of the process, with the peak of its memory. (Its parent's peak,
# which resource.getrusage would report, depends on the tests that ran before.)
WITH_STATUS = """
import atexit, runpy, shutil, sys
atexit.register(shutil.copyfile, "/proc/self/status", sys.argv.pop(1))
runpy.run_module("onmf", run_name="__main__", alter_sys=True)
"""


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def ten(tmp_path):
    """A folder of ten files."""
    folder = tmp_path / "ten"
    for i in range(10):
        drink = ("tea", "milk")[i % 2]
        (folder / drink).mkdir(parents=True, exist_ok=True)
        (folder / drink / f"{i}.txt").write_text(
            ("green tea leaves cup " if i % 2 == 0 else "fresh cow milk farm ") * (i + 1)
        )
    return folder


@pytest.fixture(scope="module")
def docstrings(tmp_path_factory):
    """The embedded corpus as two JSON lines files, one for each half."""
    folder = tmp_path_factory.mktemp("docstrings")
    triples = docstring_texts()
    for name, half in (("first", triples[::2]), ("second", triples[1::2])):
        lines = [json.dumps({"name": i, "body": text, "part": part}) for i, text, part in half]
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    return folder


def test_warning_if_no_document_has_a_class(tmp_path):
    flat = tmp_path / "flat"
    flat.mkdir()
    for number, text in enumerate(["red wine wine", "green tea tea", "red wine", "green tea"]):
        (flat / f"{number}.txt").write_text(text)
    done = command("documents", flat, "-k", 2, "--labels", "folder")
    assert done.returncode == 0, done.stderr
    assert "--labels folder gives none of the documents a class: nothing is compared." in done.stderr


def test_ten_files(ten, tmp_path):
    done = onmf("documents", ten, "-k", 2, "--labels", "folder", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("10 documents, 8 words, 2 clusters: a vote of 24 runs in 3 views of the words\n")
    assert "accuracy 100.0%" in done.stdout
    assert "vote of 24 runs" in done.stderr
    assert sorted(os.listdir(tmp_path / "out")) == WRITTEN
    assigned = rows(tmp_path / "out" / "assignments.csv")
    assert list(assigned[0]) == COLUMNS
    assert {row["label"]: row["cluster"] for row in assigned} in ({"milk": "1", "tea": "2"}, {"milk": "2", "tea": "1"})
    assert all(float(row["scale"]) > 0 and float(row["margin"]) > 0 for row in assigned)
    assert all(0 < float(row["confidence"]) <= 1 and row["runner_up"] != row["cluster"] for row in assigned)
    clusters = rows(tmp_path / "out" / "clusters.csv")
    assert [row["size"] for row in clusters] == ["5", "5"]
    assert {row["label"] for row in clusters} == {"milk", "tea"}
    assert all({"cow", "tea"} & set(row["distinctive"].split(", ")) for row in clusters)
    assert oct((tmp_path / "out").stat().st_mode)[-3:] == "755"
    done = onmf("show", tmp_path / "out" / "model.onmf")
    assert "A model of documents: 2 clusters in 10 documents, described by 8 words" in done.stdout
    assert clusters[0]["distinctive"] in done.stdout
    facts = json.loads(onmf("show", tmp_path / "out" / "model.onmf", "--json").stdout)
    assert [row["size"] for row in facts["clusters"]] == [5, 5]


def test_without_out_nothing_is_written(ten, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    done = onmf("documents", ten, "-k", 2)
    assert done.exit_code == 0
    assert sorted(tmp_path.rglob("*")) == before


def test_json_quiet_and_parquet(ten, tmp_path):
    out = tmp_path / "out"
    done = onmf("documents", ten, "-k", 2, "--out", out, "--json", "--format", "parquet", "--labels", "folder")
    result = json.loads(done.stdout)
    assert (result["n_documents"], result["n_clusters"], result["comparison"]["accuracy"]) == (10, 2, 1.0)
    assert "vote of 24 runs in 3 views of the words. --quick runs once" in done.stderr
    table = pyarrow.parquet.read_table(out / "assignments.parquet")
    assert table.column_names == COLUMNS
    assert table.num_rows == 10
    done = onmf("documents", ten, "-k", 2, "--quiet")
    assert (done.stdout, done.stderr) == ("", "")


def test_shards(docstrings, tmp_path):
    corpus, *columns = docstrings / "first.jsonl", "--text", "body", "--id", "name"
    options = (corpus, *columns, "-k", "6", "--quiet", "--no-report")
    assert onmf("documents", *options, "--quick", "--out", tmp_path / "whole").exit_code == 0
    done = onmf("documents", *options, "--out", tmp_path / "parts", "--shards", tmp_path / "shards")
    assert done.exit_code == 0, done.output
    for name in ("assignments.csv", "clusters.csv"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "parts" / name).read_bytes()
    names = sorted(file.name for file in (tmp_path / "shards").iterdir())
    assert names == ["beginnings.txt", "ids.txt", "names.json", "shard-000000.npz"]
    again = command("documents", *options, "--shards", tmp_path / "shards")
    assert again.returncode == 2
    assert "exists and is not empty: name another folder, or use --force to replace it." in again.stderr
    assert onmf("documents", *options, "--shards", tmp_path / "shards", "--force").exit_code == 0
    for arguments, message in (
        (("--shards", tmp_path / "a" / "b", "--out", tmp_path / "a"), "one folder contains the other"),
        (("--shards", tmp_path / "a", "--refine", "local-search"), "refine='local-search' needs all rows in memory"),
    ):
        done = command("documents", *options, *arguments)
        assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "a").exists()


def test_an_existing_folder_is_replaced_only_with_force(ten, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    assert onmf("documents", ten, "-k", 2, "--out", out).exit_code == 0  # an empty folder may be used
    before = (out / "assignments.csv").read_bytes()
    done = command("documents", ten, "-k", 3, "--out", out)
    assert done.returncode == 2
    assert done.stderr == f"onmf: {out} exists and is not empty: name another folder, or use --force to replace it.\n"
    assert (out / "assignments.csv").read_bytes() == before
    assert onmf("documents", ten, "-k", 3, "--out", out, "--force").exit_code == 0
    assert len(rows(out / "clusters.csv")) == 3
    (out / "thesis.tex").write_text("precious")
    done = command("documents", ten, "-k", 2, "--out", out, "--force")
    assert done.returncode == 2
    assert "holds 'thesis.tex', which was not written by this command" in done.stderr
    assert (out / "thesis.tex").read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "ten"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("documents", "empty", "-k", 2), "empty contains no documents."),
        (("documents", "nowhere", "-k", 2), "nowhere: there is no such file or folder."),
        (("documents", "ten", "-k", 11), "11 clusters of 10 documents are not possible: ask for at most 10."),
        (("documents", "ten", "-k", "0"), "-k 0 is not a number of clusters"),
        (("documents", "a.csv", "-k", 1, "--text", "body"), "has no column 'body' for the text. It has 'id', 'text'."),
        (("documents", "a.csv", "-k", 1, "--labels", "folder"), "has no column 'folder' for the labels"),
        (("documents", "picture.png", "-k", 1), "picture.png is not text: use a folder"),
        (("documents", "ten", "-k", 2, "--strip", "feet"), "--strip feet is not known: use headers."),
        (("documents", "ten", "-k", 2, "--refine", "more"), "refine='more'"),
        (("documents", "ten", "-k", 2, "--min-df", "some"), "--min-df some is not a number"),
        (("documents", "ten", "-k", 2, "--min-df", "1.5"), "a number with a decimal point is a share"),
        (("documents", "ten", "-k", 2, "--min-df", "inf"), "--min-df inf is not a number"),
        (("documents", "ten", "-k", 2, "--max-df", "nan"), "--max-df nan is not a number"),
        (("documents", "ten", "-k", 2, "--ngrams", "2-1"), "--ngrams 2-1 is not a range"),
        (("documents", "ten", "-k", 2, "--ngrams", "1-99"), "--ngrams 1-99: an n-gram has at most 20 words or letters"),
        (("documents", "ten", "-k", 2, "--stop-words", "picture.png"), "picture.png is not a text file in UTF-8"),
        (("documents", "ten", "-k", 2, "--language", "elvish"), "No stop words are known for the language 'elvish'"),
        (("documents", "ten", "-k", 2, "--token-pattern", "("), "--token-pattern"),
        (("documents", "ten", "-k", 2, "--stop-words", "nowhere"), "nowhere: No such file or directory."),
        (("documents", "ten", "-k", 2, "--out", "a.csv"), "a.csv is a file: name a folder."),
        (("predict", "a.csv", "ten"), "is not an onmf model, or is damaged"),
        (("predict", "nowhere.onmf", "ten"), "nowhere.onmf: there is no such file."),
        (("show", "ten"), "is a folder, not an onmf model"),
    ],
)  # fmt: skip
def test_error_messages(arguments, message, ten, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.csv").write_text("id,text\n1,tea\n")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    before = sorted(tmp_path.rglob("*"))
    said = command(*arguments)
    assert said.returncode == 2
    assert said.stderr.startswith("onmf: ")
    assert message in said.stderr
    assert said.stderr.count("\n") == 1
    assert said.stdout == ""
    assert sorted(tmp_path.rglob("*")) == before


@needs_posix
@pytest.mark.parametrize("option", ["--stop-words", "--from"])
def test_a_small_file_may_be_a_pipe_but_not_endless(option, ten, tmp_path):
    onmf("documents", ten, "-k", 2, "--out", tmp_path / "out")

    def read(path):
        if option == "--from":
            return command("rename", tmp_path / "out/model.onmf", option, path)
        return command("documents", ten, "-k", 2, option, path)

    os.mkfifo(tmp_path / "pipe")
    for path, message in (("/dev/zero", "/dev/zero is larger than"), (tmp_path / "pipe", "start its writer first")):
        refused = read(path)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert message in refused.stderr
    out, into = os.pipe()
    os.write(into, b"cluster,name\n1,drinks\n")
    os.close(into)
    assert read(f"/dev/fd/{out}").returncode == 0
    os.close(out)


def test_a_binary_file_and_a_latin_1_file_among_the_texts(ten, tmp_path):
    (ten / "tea" / "photo.jpg").write_bytes(b"\xff\xd8\xff\xe0" + bytes(100))
    (ten / "milk" / "käse.txt").write_bytes("frischer Käse, fresh milk".encode("latin-1"))
    (ten / "milk" / "blank.txt").write_text("1 2 3\n")
    done = onmf("documents", ten, "-k", 2, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert "12 documents" in done.stdout
    assert "1 file left out: tea/photo.jpg (not text)." in done.stdout
    assert "1 document not in UTF-8, read as cp1252." in done.stdout
    assert "1 document without a usable word, unassigned: milk/blank.txt." in done.stdout
    blank = next(row for row in rows(tmp_path / "out" / "assignments.csv") if row["id"] == "milk/blank.txt")
    assert {blank[name] for name in ("cluster", "confidence", "runner_up", "scale", "margin")} == {""}
    assert "käse" in package.load(tmp_path / "out" / "model.onmf").extra_["vocabulary"]


def test_one_document(tmp_path):
    (tmp_path / "a.txt").write_text("tea tea milk\n")
    done = onmf("documents", tmp_path / "a.txt", "-k", 1, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert "1 document, 2 words, 1 cluster:" in done.stdout


def test_standard_input(tmp_path):
    lines = b"tea cup\nmilk cow\ntea leaf\nmilk farm\n"
    done = onmf("documents", "-", "-k", 2, "--out", tmp_path / "out", input=lines)
    assert done.exit_code == 0, done.output
    assert [row["id"] for row in rows(tmp_path / "out" / "assignments.csv")] == ["1", "2", "3", "4"]
    done = onmf("predict", tmp_path / "out" / "model.onmf", "-", input=b"more tea\nnothing known\n")
    assert done.exit_code == 0, done.output
    first, second = csv.DictReader(done.stdout.splitlines())
    assert first["cluster"] == rows(tmp_path / "out" / "assignments.csv")[0]["cluster"]
    assert (second["id"], second["cluster"]) == ("2", "")
    assert "1 document without any of the model's words, unassigned: 2." in done.stderr


def test_options_reach_the_vectorizer_and_the_estimator(docstrings, tmp_path):
    (tmp_path / "stop.txt").write_text("Parameters\nreturns\n")
    done = onmf(
        "documents", docstrings / "first.jsonl", "-k", 5, "--text", "body", "--id", "name", "--labels", "part",
        "--stop-words", tmp_path / "stop.txt", "--min-df", "0.01", "--max-df", "0.5", "--max-features", 500,
        "--ngrams", "1-2", "--strip-accents", "unicode", "--binary", "--divergence", "0.5", "--init", "++",
        "--n-init", 2, "--max-iter", 50, "--tol", "1e-4", "--smoothing", "0.01", "--seed", 3, "--threads", 1,
        "--no-report", "--out", tmp_path / "out",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert sorted(os.listdir(tmp_path / "out")) == [*WRITTEN[:3], "summary.json"]
    model = package.load(tmp_path / "out" / "model.onmf")
    expected = {"n_clusters": 5, "beta_loss": 0.5, "init": "++", "n_init": 2, "max_iter": 50, "tol": 1e-4}
    expected |= {"smoothing": 0.01, "random_state": 3, "n_threads": 1}
    assert {name: model.get_params()[name] for name in expected} == expected
    words = model.extra_["vocabulary"]
    assert len(words) == 500
    assert any(" " in word for word in words)
    assert not {"parameters", "returns", "the"} & set(words)
    options = model.extra_["vectorizer"]
    assert (options["binary"], options["ngram_range"], options["strip_accents"]) == (True, [1, 2], "unicode")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-k", "auto", "--k-min", 6, "--k-max", 5], "--k-max 5 is less than --k-min 6"),
        (["-k", "auto", "--k-min", 0], "--k-min"),
    ],
)
def test_a_choice_that_cannot_be_is_refused(tmp_path, options, message):
    (tmp_path / "a.txt").write_text("\n".join(f"tea milk word{chr(97 + i % 5)}" for i in range(30)))
    done = onmf("documents", tmp_path / "a.txt", *options)
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())


def test_auto_and_characters(tmp_path):
    rng = np.random.default_rng(0)
    words = [["tea", "leaf", "cup", "pot"], ["cow", "milk", "grass", "farm"]]
    (tmp_path / "a.txt").write_text("\n".join(" ".join(rng.choice(words[i % 2], 20)) for i in range(30)))
    done = onmf("documents", tmp_path / "a.txt", "-k", "auto", "--seed", 0, "--json")
    result = json.loads(done.stdout)
    assert result["n_clusters"] == 2
    selection = result["selection"]
    assert [row["n_clusters"] for row in selection["tried"]] == [2, 3]
    assert (selection["n_clusters"], selection["n_rows"]) == (2, 30)
    assert selection["draws_without_structure"] >= 4
    assert selection["as_good"] == 0
    done = onmf("documents", tmp_path / "a.txt", "-k", "auto", "--seed", 0, "--k-min", 3, "--k-max", 5)
    assert "3 clusters were chosen of 3 to 5: halves of the documents agree on them to 0." in done.output
    done = onmf("documents", tmp_path / "a.txt", "-k", 2, "--analyzer", "char", "--ngrams", "2-3")
    assert done.exit_code == 0, done.output


@pytest.mark.long("larger data")
def test_predict_agrees_with_the_matrix_of_counts(docstrings, tmp_path):
    columns = ("--text", "body", "--id", "name", "--labels", "part")
    done = onmf("documents", docstrings / "first.jsonl", *columns, "-k", 13, "--quick", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    model = tmp_path / "out" / "model.onmf"
    check_predictions(model, docstrings / "first.jsonl", docstrings / "second.jsonl", columns, tmp_path)
    done = onmf("predict", model, docstrings / "second.jsonl", *columns, "--out", tmp_path / "new.parquet")
    assert done.exit_code == 0, done.output
    assert "purity" in done.stderr
    table = pyarrow.parquet.read_table(tmp_path / "new.parquet").to_pylist()
    assert [row["cluster"] for row in table] == [
        int(row["cluster"]) if row["cluster"] else None for row in rows(tmp_path / "new.csv")
    ]
    assert onmf("predict", model, docstrings / "second.jsonl", *columns, "--out", tmp_path / "new.csv").exit_code == 2
    document = json.loads(onmf("predict", model, docstrings / "second.jsonl", *columns, "--json").stdout)
    lines = onmf("predict", model, docstrings / "second.jsonl", *columns, "--jsonl").stdout.splitlines()
    assert document == [json.loads(line) for line in lines]
    assert [row["id"] for row in document] == [row["id"] for row in table]
    refused = onmf("predict", model, docstrings / "second.jsonl", *columns, "--json", "--jsonl")
    assert (refused.exit_code, "use one of them" in refused.output) == (2, True)


def check_predictions(model, first, second, columns, folder):
    """Count with scikit-learn and fit again: the results must equal the output of the commands."""
    done = onmf("predict", model, second, *columns, "--out", folder / "new.csv")
    assert done.exit_code == 0, done.output
    text, name = columns[1], columns[3]
    loaded = package.load(model)
    vocabulary = loaded.extra_["vocabulary"]
    vectorizer = make_vectorizer(vocabulary=vocabulary)
    X, Y = (vectorizer.transform([t.text for t in read(half, text=text, id=name)]) for half in (first, second))
    kept = np.flatnonzero(np.diff(X.indptr))
    again = package.ONMF(**loaded.get_params()).fit(X[kept])
    order = np.argsort(-np.bincount(again.labels_), kind="stable")  # the largest cluster is the first
    assert again.cluster_centers_[order].tobytes() == loaded.cluster_centers_.tobytes()
    filled = np.flatnonzero(np.diff(Y.indptr))
    expected = [""] * Y.shape[0]
    for i, label in zip(filled, np.argsort(order)[again.predict(Y[filled])], strict=True):
        expected[i] = str(label + 1)
    assert [row["cluster"] for row in rows(folder / "new.csv")] == expected


@pytest.mark.long("larger data")
def test_newsgroups(tmp_path):
    if not NEWSGROUPS.exists():
        pytest.skip(f"{NEWSGROUPS} is not available")
    # The report on so many documents has a test of its own.
    options = (
        "--quick",
        "--strip",
        "headers",
        "--labels",
        "folder",
        "--no-report",
        "--out",
        tmp_path / "out",
        "--json",
    )
    measured = ("-c", WITH_STATUS, tmp_path / "status") if sys.platform == "linux" else ("-m", "onmf")
    done = process("documents", NEWSGROUPS, "-k", 20, *options, python=measured)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["n_documents"], result["n_clusters"]) == (19_997, 20)
    assert result["comparison"]["accuracy"] > 0.45
    assert result["notes"][0] == "73 documents not in UTF-8, read as cp1252."
    assert result["notes"][1].startswith("Encoded attachments dropped from 46 documents: ")
    for subject in ("hockey", "encryption", "armenian", "jesus", "nasa", "motif", "scsi", "jpeg"):
        assert sum(subject in row["distinctive"].split(", ") for row in result["clusters"]) == 1
    if sys.platform == "linux":
        assert int(re.search(r"VmHWM:\s+(\d+) kB", (tmp_path / "status").read_text())[1]) < 1_500_000


@pytest.mark.long("larger data")
def test_predict_half_of_newsgroups(tmp_path):
    if not NEWSGROUPS.exists():
        pytest.skip(f"{NEWSGROUPS} is not available")
    halves = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    with halves[0].open("w") as first, halves[1].open("w") as second:
        for i, text in enumerate(read(NEWSGROUPS, strip=["headers"])):
            (first, second)[i % 2].write(json.dumps({"name": text.id, "body": text.text}) + "\n")
    columns = ("--text", "body", "--id", "name")
    done = onmf("documents", halves[0], *columns, "-k", 20, "--quick", "--no-report", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    check_predictions(tmp_path / "out" / "model.onmf", *halves, columns, tmp_path)


def test_headers_are_dropped_from_new_documents_too(tmp_path):
    for name, words in (("a", "tea cup"), ("b", "milk cow"), ("c", "tea leaf")):
        (tmp_path / "mail").mkdir(exist_ok=True)
        (tmp_path / "mail" / name).write_text(f"From: x\nSubject: milk milk milk\n\n{words}\n")
    done = onmf("documents", tmp_path / "mail", "-k", 2, "--strip", "headers", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    model = tmp_path / "out" / "model.onmf"
    stripped = onmf("predict", model, tmp_path / "mail").stdout
    assert [row["cluster"] for row in csv.DictReader(stripped.splitlines())] == [
        row["cluster"] for row in rows(tmp_path / "out" / "assignments.csv")
    ]


def test_predict_of_a_matrix(tmp_path, counts):
    X = counts[0]
    model = package.ONMF(3).fit(X)
    model.save(tmp_path / "model.onmf")
    with (tmp_path / "rows.svmlight").open("w") as file:
        for row in X:
            file.write("0 " + " ".join(f"{j + 1}:{value}" for j, value in enumerate(row) if value or j == 23) + "\n")
    done = onmf("predict", tmp_path / "model.onmf", tmp_path / "rows.svmlight")
    assert done.exit_code == 0, done.output
    assert [int(row["cluster"]) for row in csv.DictReader(done.stdout.splitlines())] == model.labels_.tolist()
    (tmp_path / "empty.svmlight").write_text("0 1:5 24:0\n0 24:0\n")
    said = onmf("predict", tmp_path / "model.onmf", tmp_path / "empty.svmlight").stderr
    assert said == "onmf: 1 row without any of the model's features, unassigned: 1.\n"


def bytes_waiting(pipe):
    import fcntl  # not on Windows
    import termios

    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


@needs_posix
@pytest.mark.short("Ctrl-C must leave no file, on every machine")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interruption_leaves_no_files(tmp_path, number, status):
    command = [sys.executable, "-m", "onmf", "documents", "-", "-k", "2", "--out", str(tmp_path / "out")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        running.stdin.write("tea\nmilk\n")
        running.stdin.flush()
        until(lambda: bytes_waiting(running.stdin) == 0)  # the command has read both lines and waits for more
        assert [path.name.startswith(".out.") for path in tmp_path.iterdir()] == [True]
        running.send_signal(number)
        assert running.wait() == status
        assert running.stderr.read() == "onmf: interrupted.\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long("faults at every step of writing")
def test_a_limit_on_the_size_of_files(ten, tmp_path):
    resource = pytest.importorskip("resource", reason="this system has no limits on processes")

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))

    done = process(
        "documents",
        ten,
        "-k",
        2,
        "--out",
        tmp_path / "out",
        preexec_fn=limit,
        env={**os.environ, "NUMBA_CACHE_DIR": ""},
    )
    assert done.returncode == 2
    assert "File too large" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["ten"]


@pytest.mark.long("faults at every step of writing")
def test_a_full_disk(ten, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk]
    mounted = subprocess.run(mount, capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.decode().strip()}")
    try:
        done = process("documents", ten, "-k", 2, "--quick", "--out", disk / "out")
        assert done.returncode == 2
        assert "No space left on device" in done.stderr
        assert list(disk.iterdir()) == []
        assert process("documents", ten, "-k", 2, "--quick", "--no-report", "--out", disk / "out").returncode == 0
    finally:
        subprocess.run(["umount", disk], check=True)


@needs_posix
def test_a_folder_without_write_permission(ten, tmp_path):
    if os.geteuid() == 0:
        out = Path("/proc/out")  # not even root can write here
    else:
        tmp_path.chmod(0o555)
        out = tmp_path / "out"
    done = command("documents", ten, "-k", 2, "--out", out)
    tmp_path.chmod(0o755)
    assert done.returncode == 2
    assert f"{out}: nothing can be written there" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.long("commands in a process of their own")
def test_a_reader_that_closes_the_pipe(ten, tmp_path):
    assert onmf("documents", ten, "-k", 2, "--out", tmp_path / "out").exit_code == 0
    (tmp_path / "many.txt").write_text("tea cup\n" * 50_000)
    command = f"{sys.executable} -m onmf predict {tmp_path}/out/model.onmf {tmp_path}/many.txt | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.stdout == "id,cluster,name,confidence,runner_up,scale,margin,surprise\n"
    assert "Traceback" not in done.stderr


EVIL = [
    "\x1b[31mred",
    "\x1b]0;title\x07",
    "\u202egnp.exe",
    "\x9b31m",
    "[red]a[/red]",
    ":smile:",
    "[link=https://example.org]a[/link]",
]
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters that control a terminal, except for the newline, which the commands print themselves."""


@pytest.fixture
def evil(tmp_path):
    """Documents whose names, classes and words contain terminal escapes and markup."""
    if os.name != "posix":
        pytest.skip("this system does not allow such names")
    folder = tmp_path / "evil"
    for i, name in enumerate(EVIL):
        (folder / name.replace("/", "|")).mkdir(parents=True)
        for j in range(2):
            path = folder / name.replace("/", "|") / f"{j}\x1b[2J\nonmf: all is well.txt"
            path.write_text(f"{name} {name} word{'abcdefg'[i]} {name}")
        (folder / name.replace("/", "|") / "\x1b[31m.txt").symlink_to("nowhere")
        (folder / name.replace("/", "|") / "aside.txt").write_text("1")
    return folder


def test_output_cannot_control_the_terminal(evil, tmp_path):
    options = ("-k", 2, "--token-pattern", r"[^\s1]+", "--labels", "folder")
    done = command("documents", evil, *options, "--out", tmp_path / "out\x1b[31m")
    assert done.returncode == 0, done.stderr
    assert not CONTROL.search(done.stdout + done.stderr)
    assert not re.search("^onmf: all is well", done.stdout + done.stderr, re.MULTILINE)
    for text in (r"\x1b[31mred", "[red]a[/red]", ":smile:", r"\u202egnp.exe", r"out\x1b[31m"):
        assert text in done.stdout
    assert re.search(r"7 files left out: .*\\x1b\[31m\.txt \(a link or device\)", done.stdout)
    model = tmp_path / "out\x1b[31m" / "model.onmf"
    done = command("predict", model, evil)
    assert done.returncode == 0, done.stderr
    assert not CONTROL.search(done.stderr)
    assert "\x1b[2J" in done.stdout, "files and programs get the names unchanged"
    for arguments in (
        ("show", model),
        ("show", model, "--json"),
        ("predict", model, evil, "--json"),
        ("documents", evil, *options, "--json"),
        ("documents", evil, "-k", 2, "--text", "a\x1b[31m"),
        ("documents", evil / "\x1b[31mnothing[red]", "-k", 2),
        ("documents", evil, "-k", "\x1b[31m"),
        ("documents", evil, "-k", 2, "--token-pattern", "(\x1b[31m"),
        ("predict", model, tmp_path / "\x1b[31mnothing"),
        ("predict", evil / ":smile:" / "aside.txt", evil),
    ):
        done = command(*arguments)
        assert not CONTROL.search(done.stdout + done.stderr), arguments
        assert done.stderr.count("\n") <= 2 or "Usage" in done.stderr


@pytest.mark.long("commands in a process of their own")
def test_a_table_on_a_terminal(evil, tmp_path):
    assert onmf("documents", evil, "-k", 2, "--out", tmp_path / "out", "--quiet").exit_code == 0
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "onmf", "predict", tmp_path / "out" / "model.onmf", evil, "--quiet"]
    with subprocess.Popen(command, stdout=theirs) as running:
        os.close(theirs)
        output = b""
        try:
            while part := os.read(ours, 65536):
                output += part
        except OSError:  # the other end is closed
            pass
        assert running.wait() == 0
    os.close(ours)
    text = output.decode().replace("\r\n", "\n")
    assert text.startswith("id,cluster,name,confidence,runner_up,scale,margin,surprise\n")
    assert not CONTROL.search(text)
    assert r"\x1b[2J" in text


def test_escapes_in_a_model_file(ten, tmp_path):
    path = tmp_path / "model.onmf"
    model = package.ONMF(2).fit([[1, 0], [0, 1]])
    words = {"vocabulary": ["\x1b[31mtea", "milk\x07"], "vectorizer": {"token_pattern": "(?:a+)+b"}}
    model.save(path, extra={"kind": "documents", **words})
    saved = read_model(path)
    saved.provenance["created"] = saved.provenance["onmf"] = "\x1b]0;title\x07"
    write_model(path, saved)
    done = command("show", path)
    assert done.returncode == 0, done.stderr
    assert not CONTROL.search(done.stdout)
    assert r"\x1b[31mtea" in done.stdout
    assert r"Written \x1b]0;title\x07" in done.stdout
    done = command("predict", path, ten)
    assert done.returncode == 2
    assert "onmf: The model's words were found with the pattern '(?:a+)+b'" in done.stderr
    done = command("predict", path, ten, "--token-pattern", "(?:a+)+b")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 11
    model.save(path, extra={"kind": "\x1b[31m"})
    done = command("predict", path, ten)
    assert r"is a model of kind '\x1b[31m'" in done.stderr


@pytest.mark.long("commands in a process of their own")
def test_help_version_and_completion():
    for words in ((), ("documents",), ("predict",), ("show",)):
        done = onmf(*words, "--help", env={"COLUMNS": "150"})
        assert done.exit_code == 0
        assert "onmf documents" in done.stdout or "For example" in done.stdout or "Example" in done.stdout or not words
    assert onmf("--version").stdout.startswith("onmf ")
    done = process("--show-completion", "bash", env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"})
    assert done.returncode == 0, done.stderr
    assert "_ONMF_COMPLETE" in done.stdout or "COMPLETE" in done.stdout
