"""Dates of documents."""

from datetime import date

import numpy as np
import pytest

from conftest import command
from onmf.text import cluster, read
from onmf.text.words import parse_date, parse_dates


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-03-01", date(2024, 3, 1)),
        (" 2024/3/1 ", date(2024, 3, 1)),
        ("2024-03-01T10:20:30Z", date(2024, 3, 1)),
        ("2024-03-01 10:20:30.5+02:00", date(2024, 3, 1)),
        ("2024-03", date(2024, 3, 1)),
        ("1987", date(1987, 1, 1)),
        ("20240301", date(2024, 3, 1)),
        ("1.3.2024", date(2024, 3, 1)),
        ("Mon, 20 Nov 1995 19:12:08 -0500", date(1995, 11, 20)),
        ("20 November 1995", date(1995, 11, 20)),
        ("20-Nov-1995", date(1995, 11, 20)),
        ("March 1, 2024", date(2024, 3, 1)),
        ("Sept. 2024", date(2024, 9, 1)),
    ],
)
def test_dates_as_people_write_them(text, expected):
    assert parse_date(text) == expected


@pytest.mark.parametrize(
    "text", ["", "soon", "1/2/2024", "2024-13-01", "2024-02-30", "31.2.2024", "5 Mai 24", "0000", "12", "2024" * 30]
)
def test_what_is_no_date(text):
    assert parse_date(text) is None


def test_missing_and_unread_dates_are_counted_and_named():
    dates, notes = parse_dates(["2024", None, " ", "soon", "1/2/2024"], ["a", "b", "c", "d", "e"])
    assert dates[0] == np.datetime64("2024-01-01")
    assert np.isnat(dates[1:]).all()
    assert notes == [
        "2 documents without a date.",
        "2 dates not understood: “soon” (document d), “1/2/2024” (document e). Write dates as 2024-03-01.",
    ]
    assert parse_dates([None, None], ["a", "b"]) == parse_dates([], []) == (None, [])


ROWS = "text,when\nred tea,2024-01-03\ngreen tea,2024-02-05\ncow milk,soon\nmilk of a cow,\n"


@pytest.mark.parametrize("shards", [False, True])
def test_dates_of_a_table(tmp_path, shards):
    path = tmp_path / "a.csv"
    path.write_text(ROWS)
    found = cluster(read(path, date="when"), 2, shards=tmp_path / "counts" if shards else None)
    assert [str(day) for day in found.table.dates] == ["2024-01-03", "2024-02-05", "NaT", "NaT"]
    notes = found.notes
    assert "1 document without a date." in notes
    assert "1 date not understood: “soon” (document 3). Write dates as 2024-03-01." in notes
    assert found.table.X.shape == (4, len(found.words))
    found.model.save(tmp_path / "model.onmf")
    assert cluster(read(path), 2).table.dates is None


def test_the_option_of_the_command(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(ROWS)
    done = command("documents", path, "-k", 2, "--date", "when", "--out", tmp_path / "out", "--quiet")
    assert done.returncode == 0, done.stderr
    done = command("documents", path, "-k", 2, "--date", "day")
    assert done.returncode != 0
    assert "has no column 'day' for the dates" in done.stderr
    (tmp_path / "lines.txt").write_text("tea\nmilk\n")
    done = command("documents", tmp_path / "lines.txt", "-k", 2, "--date", "day")
    assert "date='day' is a column, but" in done.stderr
