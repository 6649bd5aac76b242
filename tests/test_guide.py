"""The guide for data that do not fit in memory, followed from top to bottom as a reader would."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[1] / "docs" / "guide" / "large.md"


def test_the_guide_can_be_followed(tmp_path):
    for needed in ("dask.distributed", "anndata"):
        pytest.importorskip(needed)
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) == 7
    # Workers import the main script, so all of it goes under one __main__ guard. The guide has the guard only once.
    lines = ["if __name__ == '__main__':", *(f"    {line}" for block in blocks for line in block.splitlines())]
    script = tmp_path / "follow.py"
    script.write_text("\n".join([*lines, "    print(model.n_iter_, labels.shape)"]))
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("(24000,)\n")
    assert len(list((tmp_path / "corpus").glob("*.npz"))) == 12
