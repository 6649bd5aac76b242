"""The registry of kinds of data, and a kind that someone adds: it goes through the whole pipeline."""

import csv
import json
from collections import Counter

import pytest
from scipy.sparse import csr_array

import onmf
from conftest import command
from onmf.cli import app
from onmf.cli.command import add_command
from onmf.cli.common import COMMANDS, imported
from onmf.cli.models import add_predict
from onmf.door import Kind, Option, Table
from onmf.door.kind import UNKNOWN
from onmf.io.rules import one_of
from onmf.kinds import KINDS, get_kind


def test_kinds_that_are_not_registered(tmp_path):
    """Their models can be loaded and shown, and nothing else."""
    assert get_kind("songs") is UNKNOWN
    path = tmp_path / "model.onmf"
    onmf.ONMF(2).fit([[1, 0], [0, 1]]).save(path, extra={"kind": "songs", "pitch": "a"})
    assert onmf.load(path).extra_ == {"kind": "songs", "pitch": "a"}
    assert command("show", path).stdout.startswith("A model of songs: 2 clusters in 2 rows, described by 2 features\n")
    refused = command("predict", path, "carols.txt")
    assert refused.returncode == 2
    assert refused.stderr == f"onmf: {path} is a model of kind 'songs': this command knows {', '.join(KINDS)}.\n"


def test_summaries_of_commands():
    """The help of ``onmf`` imports no command, and shows the first sentence of each."""
    assert {name for name in KINDS if get_kind(name).command} <= set(COMMANDS)
    for name, (_, summary) in COMMANDS.items():
        assert imported(name).help.partition("\n\n")[0] == summary


def parse_pitch(value):
    if value not in "abcdefg":
        raise ValueError("is not a pitch: use a letter from a to g.")
    return value


class SongKind(Kind):
    """Songs: counts of their notes. A file has a song on each line: its title, a colon, and notes."""

    name = command = "songs"
    about = "Cluster songs by their notes."
    examples = ("onmf songs carols.txt -k 2 --out choirs",)
    argument_help = "A text file with a song on each line."
    row, feature, cluster = "song", "note", "choir"
    first = 1
    options = (
        Option("voice", "Voice of the songs that is read.", str, "all", "all|high", reading=True),
        Option("pitch", "Pitch of the choirs.", str, "a", "LETTER", parse=parse_pitch),
    )
    files = ("songbook.txt",)

    def rules(self, k, p):
        return super().rules(k, p) | {"pitch": one_of(*"abcdefg")}

    def check(self, extra):
        if extra["pitch"] == "b":
            raise ValueError("its pitch is wrong")

    def read(self, path, progress, *, voice="all", **options):
        titles, sung = [], []
        with open(path, encoding="utf-8") as file:
            for line in file:
                title, _, notes = line.partition(":")
                titles.append(title)
                sung.append(Counter(note for note in notes.split() if voice == "all" or note.endswith("'")))
        scale = sorted(set().union(*sung))
        X = csr_array([[song[note] for note in scale] for song in sung])
        return Table(X, titles, scale, source=str(path), notes=["One song is missing its last verse."])

    def prepare(self, table, parameters, progress, *, pitch="a", **options):
        self.pitch = pitch
        return super().prepare(table, parameters, progress)

    def entries(self, clusters):
        return super().entries(clusters) | {"pitch": self.pitch}

    def row_columns(self, clusters, part):
        return {"notes": csr_array(clusters.table.X)[part].sum(axis=1)}

    def summary(self, clusters):
        return {"pitch": self.pitch}

    def write(self, clusters, folder):
        (folder / "songbook.txt").write_text("\n".join(clusters.table.rows), "utf-8")


SONGS = SongKind()

CAROLS = """\
Holly: do re mi do re do'
Ivy: do re do mi
Silence:
Bells: sol la si la sol'
Snow: la sol si si la
Star: re do mi mi re
"""


@pytest.fixture
def songs(monkeypatch):
    """The kind is registered, as the package does it: an entry, from which the commands are built."""
    monkeypatch.setitem(KINDS, "songs", f"{__name__}:SONGS")
    monkeypatch.setattr(app, "registered_commands", list(app.registered_commands))
    add_command(SONGS)
    add_predict()


def test_a_new_kind_has_a_command(songs, tmp_path):
    (tmp_path / "carols.txt").write_text(CAROLS, "utf-8")
    out = tmp_path / "choirs"
    ran = command("songs", tmp_path / "carols.txt", "-k", "2", "--pitch", "c", "--out", out)
    assert (ran.returncode, ran.stderr) == (
        0,
        "onmf: The clusters are a vote of 24 runs. --quick runs once, from the paper's start.\n",
    )
    lines = ran.stdout.splitlines()
    assert lines[0] == "6 songs, 8 notes, 2 choirs: a vote of 24 runs"
    assert lines[1] == "One song is missing its last verse."
    assert lines[-1] == (
        f"Written to {out}: assignments.csv, clusters.csv, model.onmf, report.html, songbook.txt, summary.json"
    )
    with open(out / "assignments.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == ["Holly", "Ivy", "Silence", "Bells", "Snow", "Star"]
    assert [row["cluster"] for row in rows] == ["1", "1", "", "2", "2", "1"]
    assert [row["notes"] for row in rows] == ["6", "4", "0", "5", "5", "5"]
    summary = json.loads((out / "summary.json").read_text("utf-8"))
    expected = {"kind": "songs", "n_songs": 6, "n_notes": 8, "unassigned": 1, "pitch": "c", "fit": "a vote of 24 runs"}
    assert expected.items() <= summary.items()
    assert (out / "songbook.txt").read_text("utf-8").startswith("Holly\n")
    page = (out / "report.html").read_text("utf-8")
    assert "Clusters of carols.txt" in page
    assert "One song is missing its last verse." in page

    shown = command("show", out / "model.onmf")
    assert shown.stdout.startswith("A model of songs: 2 choirs in 5 songs, described by 8 notes\n")
    clusters = json.loads(command("show", out / "model.onmf", "--json").stdout)["clusters"]
    assert [cluster["size"] for cluster in clusters] == [3, 2]
    assert "do" in clusters[0]["distinctive"]
    assert "la" in clusters[1]["distinctive"]
    assert command("rename", out / "model.onmf", "2", "by the fire").stdout.endswith("2  by the fire\n")


def test_a_new_kind_predicts(songs, tmp_path):
    (tmp_path / "carols.txt").write_text(CAROLS, "utf-8")
    (tmp_path / "hymns.txt").write_text("Dawn: si la mi' fa\nDusk: re re do\nNight: fa fa\n", "utf-8")
    model = tmp_path / "choirs" / "model.onmf"
    command("songs", tmp_path / "carols.txt", "-k", "2", "--out", tmp_path / "choirs", "--quiet")
    predicted = command("predict", model, tmp_path / "hymns.txt")
    assert predicted.returncode == 0, predicted.stderr
    assert predicted.stderr == (
        "onmf: One song is missing its last verse.\n"
        "onmf: 4 of the model's 8 notes are missing and count as 0: do', mi, sol, sol'.\n"
        "onmf: 1 song without any of the model's notes, unassigned: Night.\n"
    )
    rows = list(csv.DictReader(predicted.stdout.splitlines()))
    assert [(row["id"], row["cluster"]) for row in rows] == [("Dawn", "2"), ("Dusk", "1"), ("Night", "")]
    refused = command("predict", model, tmp_path / "hymns.txt", "--voice", "high")
    assert refused.returncode == 2
    assert "hymns.txt has none of the model's 8 notes" in refused.stderr
    refused = command("predict", model, tmp_path / "hymns.txt", "--layer", "raw")
    assert (refused.returncode, refused.stderr) == (2, "onmf: --layer means nothing for songs: leave it out.\n")


def test_options_of_a_new_kind(songs, tmp_path):
    (tmp_path / "carols.txt").write_text(CAROLS, "utf-8")
    refused = command("songs", tmp_path / "carols.txt", "-k", "2", "--pitch", "x")
    assert refused.returncode == 2
    assert refused.stderr == "onmf: --pitch x is not a pitch: use a letter from a to g.\n"
    refused = command("songs", tmp_path / "carols.txt", "-k", "7")
    assert refused.returncode == 2
    assert refused.stderr == (
        "onmf: 7 clusters of 5 songs (1 song more cannot be clustered) are not possible: ask for at most 5.\n"
    )
    said = command("songs", "--help").stdout
    assert "Cluster songs by their notes." in said
    assert "songbook.txt" in said
    assert "--voice" in said


def test_the_model_of_a_new_kind_is_checked(songs, tmp_path):
    path = tmp_path / "model.onmf"
    model = onmf.ONMF(2).fit([[1, 0], [0, 1]])
    for pitch, message in (
        ({}, "'pitch' is missing"),
        ({"pitch": 3}, "pitch is 3, not one of"),
        ({"pitch": "b"}, "pitch is wrong"),
    ):
        with pytest.raises(ValueError, match=message):
            model.save(path, extra={"kind": "songs", **pitch})
    model.save(path, extra={"kind": "songs", "pitch": "a"})
    assert onmf.load(path).extra_ == {"kind": "songs", "pitch": "a"}
