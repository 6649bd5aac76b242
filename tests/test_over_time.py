"""Clusters over time: bins, counts, and the features that rose and fell."""

import csv
import re
from dataclasses import replace
from datetime import date, timedelta
from email.utils import parsedate_to_datetime

import numpy as np
import pytest

from conftest import DATA, command
from onmf.door import Table
from onmf.report import rows_page
from onmf.table import cluster as cluster_table
from onmf.text import Text, cluster, read
from test_cli_documents import NEWSGROUPS

WEEKS = ["2020-W51", "2020-W52", "2020-W53"]


def clusters_of(dates, texts=("red tea", "cow milk"), **options):
    """Two clusters of short documents with these dates."""
    made = [Text(str(i), texts[i % len(texts)], None, day) for i, day in enumerate(dates)]
    return cluster(made, 2, quick=True, **options)


def days_from(first, steps):
    return [(date.fromisoformat(first) + timedelta(days=step)).isoformat() for step in steps]


@pytest.mark.parametrize(
    ("dates", "unit", "names"),
    [
        (["2024-02-28", "2024-03-01"], "day", ["2024-02-28", "2024-02-29", "2024-03-01"]),
        (["2024-03-07", "2024-03-07"], "day", ["2024-03-07"]),
        (["2020-12-20", "2021-01-24"], "day", days_from("2020-12-20", range(36))),
        (["2020-12-20", "2021-02-03"], "week", [*WEEKS, "2021-W01", "2021-W02", "2021-W03", "2021-W04", "2021-W05"]),
        (["2020-01", "2020-03"], "month", ["2020-01", "2020-02", "2020-03"]),
        (["2018-12-05", "2020-01-31"], "month", ["2018-12", *(f"2019-{i:02}" for i in range(1, 13)), "2020-01"]),
        (["2019", "2021"], "year", ["2019", "2020", "2021"]),
        (["2001-05-05", "2008-02-01"], "year", [str(year) for year in range(2001, 2009)]),
        (["1700-05-05", "1899-02-01"], "decade", [f"{year}s" for year in range(1700, 1900, 10)]),
        (["0001-01-01", "9999-12-31"], "decade", [f"{year}s" for year in range(0, 10000, 10)]),
        (["Mon, 1 Jan 2024 23:30:00 -0800", "Tue, 2 Jan 2024 00:30:00 +0900"], "day", ["2024-01-01", "2024-01-02"]),
    ],
)  # fmt: skip
def test_bins(dates, unit, names):
    found = clusters_of(dates)
    over = found.over_time
    assert (over.unit, over.names) == (unit, names)
    assert over.counts.sum(axis=1).tolist() == [1, 1]
    assert over.counts[:, 0].sum() >= 1
    assert over.counts[:, -1].sum() >= 1
    assert over.changes == []


def test_dates_of_a_frame_with_time_zones():
    pd = pytest.importorskip("pandas")
    days = pd.to_datetime(["2024-01-01 23:30", "2024-01-03 00:30", None]).tz_localize("America/Los_Angeles")
    found = cluster(
        read(pd.DataFrame({"text": ["red tea", "cow milk", "tea"], "day": days}), text="text", date="day"), 2
    )
    assert found.over_time.names == ["2024-01-01", "2024-01-02", "2024-01-03"]
    assert found.over_time.counts.sum() == 2


@pytest.mark.parametrize("dates", [None, ["soon", "later"]])
def test_no_dates(dates, tmp_path):
    found = clusters_of(dates or [None, None])
    assert found.over_time is None
    found.save(tmp_path / "out", report=False)
    assert not list((tmp_path / "out").glob("*_over_time.csv"))


def test_rows_without_a_date_or_a_cluster_do_not_count():
    found = clusters_of(["2024-01-01", "2024-01-02", "soon", "2024-01-05"], ["red tea", "cow milk", "tea", "..."])
    assert found.labels[-1] == -1
    assert found.over_time.names == ["2024-01-01", "2024-01-02"]
    assert found.over_time.counts.sum() == 2
    apart = replace(found, labels=np.array([-1, -1, 0, -1]))
    assert apart.over_time is None


def test_a_few_dates_far_away_do_not_set_the_unit():
    dates = [*days_from("2024-03-01", (i % 30 for i in range(300))), "1970-01-01", "2038-01-19"]
    over = clusters_of(dates).over_time
    assert over.unit == "day"
    assert over.names[:2] == ["before 2024-03-01", "2024-03-01"]
    assert over.names[-2:] == ["2024-03-30", "after 2024-03-30"]
    assert over.counts.sum() == 302
    assert over.counts[:, [0, -1]].sum(axis=0).tolist() == [1, 1]
    assert over.counts[:, 1:-1].sum(axis=0).tolist() == [10] * 30


def telling(n=400, seed=0, burst=30):
    """Documents of a hundred days: "coffee" takes the place of "cocoa", and one document of many repeats "burst"."""
    rng = np.random.default_rng(seed)
    words = np.array([f"word{chr(97 + i)}" for i in range(20)])
    texts = []
    for i in range(n):
        drinks = ["coffee" if rng.random() < i / n else "cocoa" for _ in range(2)]
        own = "tea leaf" if i % 2 else "cow milk"
        texts.append(" ".join([own, *drinks, *rng.choice(words, 8), *["burst"] * (burst * (i == n - 5))]))
    return texts, days_from("2024-01-01", (i * 100 // n for i in range(n)))


@pytest.fixture(scope="module")
def drinks():
    texts, dates = telling()
    return clusters_of(dates, texts)


def test_words_that_rose_and_fell(drinks):
    over = drinks.over_time
    assert over.later == "2024-02-20"
    told = {(change.cluster, change.feature): change for change in over.changes}
    assert set(told) == {(k, word) for k in (None, 0, 1) for word in ("coffee", "cocoa")}
    assert over.changes[0].feature == "coffee"
    earlier = np.array([day < over.later for day in map(str, drinks.table.dates)])
    X, words = drinks.table.X.toarray(), drinks.table.features.tolist()
    for (k, word), change in told.items():
        rows = np.full(400, True) if k is None else drinks.labels == k
        for half, count, share in (
            (rows & earlier, change.before, change.share_before),
            (rows & ~earlier, change.after, change.share_after),
        ):
            assert count == X[half, words.index(word)].sum()
            assert share == pytest.approx(count / X[half].sum())
        assert (change.z > 4) if word == "coffee" else (change.z < -4)


def test_what_changes_by_chance_is_not_told(drinks):
    rng, told = np.random.default_rng(1), 0
    for _ in range(40):
        table = replace(drinks.table, dates=rng.permutation(drinks.table.dates))
        told += len(replace(drinks, table=table).over_time.changes)
    assert told <= 2


def test_counts_in_pieces_and_real_numbers_give_the_same(drinks, tmp_path):
    texts, dates = telling()
    pieces = clusters_of(dates, texts, shards=tmp_path / "counts")
    assert [(each.feature, each.before) for each in pieces.over_time.changes if each.cluster is None] == [
        (each.feature, each.before) for each in drinks.over_time.changes if each.cluster is None
    ]
    table = Table(drinks.table.X * 0.5, drinks.table.rows, drinks.table.features, dates=drinks.table.dates)
    halved = cluster_table(table, 2, quick=True).over_time.changes[0]
    assert (halved.feature, halved.before) == ("coffee", drinks.over_time.changes[0].before / 2)


def test_the_files(drinks, tmp_path):
    drinks.save(tmp_path / "out", report=False)
    drinks.save(tmp_path / "out", report=False, force=True)

    def rows_of(name):
        with open(tmp_path / "out" / name, encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    lines = rows_of("clusters_over_time.csv")
    assert list(lines[0]) == ["bin", "cluster", "name", "count", "share"]
    assert [line["cluster"] for line in lines] == ["1", "2"] * len(drinks.over_time.names)
    assert sum(int(line["count"]) for line in lines) == 400
    for one, other in zip(lines[::2], lines[1::2], strict=True):
        assert one["bin"] == other["bin"]
        assert float(one["share"]) + float(other["share"]) == pytest.approx(
            1 if one["count"] != "0" or other["count"] != "0" else 0
        )
    lines = rows_of("features_over_time.csv")
    assert list(lines[0]) == [
        "cluster",
        "name",
        "word",
        "change",
        "before",
        "after",
        "share_before",
        "share_after",
        "z",
    ]
    assert [line["cluster"] for line in lines] == ["", "", "1", "1", "2", "2"]
    assert [(line["word"], line["change"]) for line in lines[:2]] == [("coffee", "rose"), ("cocoa", "fell")]


def test_the_report(drinks):
    table = rows_page(drinks).split('<table id="changes">')[1].split("</table>")[0]
    assert re.findall(r'<th scope="row">(.*?)</th>', table)[0] == "All documents"
    assert len(re.findall(r'<th scope="row">', table)) == 3
    first = drinks.over_time.changes[0]
    assert f'coffee <span class="soft">{first.before:,} → {first.after:,}</span>' in table


def test_the_command(tmp_path):
    texts, dates = telling(60)
    lines = ["text,when", *(f"{text},{day}" for text, day in zip(texts, dates, strict=True))]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    ran = command("documents", tmp_path / "a.csv", "-k", 2, "--date", "when", "--quick", "--out", tmp_path / "out")
    assert ran.returncode == 0, ran.stderr
    assert "clusters_over_time.csv" in ran.stdout
    assert (tmp_path / "out" / "features_over_time.csv").exists()


@pytest.mark.long("larger data")
@pytest.mark.skipif(not DATA, reason="ONMF_DATA is not set: no newsgroups")
def test_real_dates():
    """Posts of spring 1993: the siege of Waco ended on April 19, and the regular season of the NHL on April 18."""
    groups = ("talk.politics.guns", "rec.sport.hockey", "sci.space")

    def dated():
        for text in read(NEWSGROUPS, labels="folder"):
            if text.label in groups:
                when = re.search(r"^Date: (.*)$", text.text, re.MULTILINE)
                day = parsedate_to_datetime(when[1]).date().isoformat() if when else None
                yield Text(text.id, text.text.split("\n\n", 1)[-1], text.label, day)

    found = cluster(dated(), 3, quick=True)
    over = found.over_time
    assert over.unit == "day"
    assert over.names[0].startswith("1993-03-")
    told = {change.feature for change in over.changes if change.cluster is None and change.z > 0}
    assert {"koresh", "fbi"} <= told
    shuffled = replace(found.table, dates=np.random.default_rng(0).permutation(found.table.dates))
    assert len(replace(found, table=shuffled).over_time.changes) <= 2
