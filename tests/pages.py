"""The code on the pages of the documentation, and functions that run it as a reader would.

The blocks of a page run from top to bottom. Python blocks share one namespace. Shell blocks run in bash, except lines
that only call ``onmf``: they run in this process, since a new one takes seconds to start. The needs that are met are
named; a block that needs anything else is left out.
"""

import os
import re
import shlex
import subprocess
import sys
import warnings
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

ROOT = Path(__file__).parents[1]
NEEDS = ("data", "gpu", "network", "callbacks")
SHELL = ("", "bash", "sh")
FENCE = re.compile(r"^( *)```([^\n`]*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
NEED = re.compile(r"<!-- needs: (\w+) -->\n\s*$")
CHECKED = ("make ", "pip install ", ".ci/run")
"""Lines that begin so change the reader's machine or run the suite: test_docs.py checks them without running them."""


class Block(NamedTuple):
    """A block of code: what language, what it needs, and the line of the page before its first."""

    language: str
    need: str
    line: int
    code: str

    @property
    def commands(self):
        """The lines of a shell block, without comments and with continued lines joined."""
        lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in self.code.replace("\\\n", " ").splitlines())
        return [line for line in lines if line]


def blocks_of(page):
    """All code on a page: Python and shell. Output (``text``) and directives of Sphinx are no code."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        language = match[2].strip()
        if language == "text" or language.startswith("{"):
            continue
        where = f"{page.name}, line {text[: match.start()].count(chr(10)) + 1}"
        assert language == "python" or language in SHELL, f"{where}: neither python, shell nor text: {language}"
        need = NEED.search(text[: match.start()])
        assert not need or need[1] in NEEDS, f"{where}: a block cannot need {need[1]!r}, only {', '.join(NEEDS)}"
        line = text[: match.start(3)].count("\n")
        found.append(Block(language, need[1] if need else "", line, match[3]))
    return found


def pages():
    """Every page with code: README, CONTRIBUTING and the documentation, without what a build writes."""
    written = {ROOT / "docs" / name for name in ("_build", "api", "examples")}
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in found if not written & set(page.parents) and blocks_of(page)]


def follow(page, met):
    """Run the code of a page."""
    names = {"__name__": "__main__"}
    for block in blocks_of(page):
        if block.need and block.need not in met:
            continue
        print(f"{page.name}, line {block.line}", file=sys.stderr, flush=True)
        if block.language == "python":
            # The empty lines make a traceback show the line of the page.
            code = compile("\n" * block.line + block.code, page, "exec")
            with warnings.catch_warnings():
                warnings.filterwarnings("error", module="__main__")
                exec(code, names)
        else:
            for line in block.commands:
                run_line(line)


def follow_in(folder, output, page, met):
    """Run the code of a page in a folder, and write what it prints to a file. A process does nothing else."""
    os.chdir(folder)
    with open(output, "wb") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    scripts = str(Path(sys.executable).parent)
    os.environ |= {"MPLBACKEND": "Agg", "COLUMNS": "120", "PATH": os.pathsep.join((scripts, os.environ["PATH"]))}
    follow(page, met)


def run_line(line):
    """Run a line of a shell block."""
    if line.startswith(CHECKED):
        return
    if line.startswith("onmf ") and not re.search(r"[|<>$*&;]", line):
        from onmf.__main__ import main

        with patch.object(sys, "argv", shlex.split(line)):
            try:
                main()
            except SystemExit as ended:
                if ended.code:
                    raise RuntimeError(f"{line}: exit status {ended.code}") from ended
    else:
        subprocess.run(["bash", "-euo", "pipefail", "-c", line], check=True)
