"""The guide on divergences: its code runs, and the benchmarks behind it."""

import re
from pathlib import Path

from benchmarks import bregman, divergences

GUIDE = Path(__file__).parents[1] / "docs" / "divergence.md"


def test_the_code_of_the_guide_runs(capsys):
    first, own = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)
    names = {}
    exec(first + own, names)
    assert float(capsys.readouterr().out) > 10
    assert names["labels"].tolist() == [0, 0, 1, 1]
    assert len([line for line in own.splitlines() if line]) <= 10


def test_the_benchmarks_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["divergences", "--quick", "--out", str(tmp_path)])
    divergences.main()
    lines = (tmp_path / "table.md").read_text().splitlines()
    assert len(lines) == 2 + len(divergences.DIVERGENCES)
    monkeypatch.setattr("sys.argv", ["bregman", "--quick"])
    bregman.main()
    assert "slope of time over nonzeros" in capsys.readouterr().out
