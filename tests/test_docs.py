"""The documentation: its code runs, its installation lines suffice, and its numbers are those of the code."""

import ast
import importlib
import re
import subprocess
import sys
import tomllib
import warnings
from importlib.metadata import packages_distributions
from importlib.util import find_spec

import pytest

from conftest import DATA, forking
from pages import CHECKED, ROOT, SHELL, blocks_of, follow_in, pages

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MODULES = {
    "cupy": ["cupy-cuda12x"],
    "cupyx": ["cupy-cuda12x"],
    "examples": ["onmf"],  # in a clone
    **packages_distributions(),
}
MET = [
    *(["data"] if DATA else []),
    *(["callbacks"] if find_spec("sklearn.callback") else []),  # of scikit-learn 1.9
]
PAGES = {str(page.relative_to(ROOT)): page for page in pages()}


@pytest.mark.long("the pages of the docs")
@pytest.mark.parametrize("name", PAGES)
def test_a_reader_can_follow_the_page(name, tmp_path):
    """In a process of its own."""
    folder, output = tmp_path / "folder", tmp_path / "output.txt"
    folder.mkdir()
    process = forking().Process(target=follow_in, args=(folder, output, PAGES[name], MET))
    process.start()
    process.join()
    assert process.exitcode == 0, output.read_text(encoding="utf-8")


def test_the_gallery_lists_nothing_but_examples():
    header = (ROOT / "examples" / "GALLERY_HEADER.rst").read_text()
    assert "toctree" not in header, "its pages would stand before the examples in the sidebar"
    guide = (ROOT / "docs" / "guide" / "images.md").read_text()
    for page in (ROOT / "docs" / "gallery").glob("*.md"):
        assert f"\n../gallery/{page.stem}\n" in guide


@pytest.mark.parametrize("module", ["cells", "datasets", "image", "metrics", "report", "table", "text"])
def test_the_reference_lists_every_public_name(module):
    listed = re.findall(r"^   ([\w.]+)$", (ROOT / "docs" / "reference.md").read_text(encoding="utf-8"), re.MULTILINE)
    home = importlib.import_module(f"onmf.{module}")
    assert {f"{module}.{name}" for name in home.__all__ if callable(getattr(home, name))} <= set(listed)


def commands(page, start):
    """The shell lines of a page that begin so."""
    lines = (line for block in blocks_of(page) if block.language in SHELL for line in block.commands)
    return [line for line in lines if line.startswith(start)]


def test_the_make_targets_exist():
    lines = {line for page in PAGES.values() for line in commands(page, "make ")}
    assert "make test" in lines
    for line in lines:
        targets = line.split()[1:]
        subprocess.run(["make", "--dry-run", *targets], cwd=ROOT, check=True, capture_output=True)


def distribution(requirement):
    """The name in a requirement, as indexes spell it."""
    return re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-")


def provided(line):
    """The distributions that an installation line installs, those of onmf's extras included."""
    named = [word.strip("'\"") for word in line.split()[2:] if not word.startswith("-")]
    found = set(map(distribution, PROJECT["dependencies"]))
    while named:
        name, extras = re.fullmatch(r"([\w.-]+)(?:\[([\w,-]+)\])?.*", named.pop()).groups()
        found.add(distribution(name) if name != "." else "onmf")
        for extra in extras.split(",") if extras and name in (".", "onmf") else ():
            assert extra in PROJECT["optional-dependencies"], f"{line}: there is no extra {extra!r}"
            named += PROJECT["optional-dependencies"][extra]
    return found


@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_installs_is_what_it_needs(name):
    """Every import of its Python blocks comes from the core or from a line with pip; ``onmf`` itself needs an extra."""
    page = PAGES[name]
    inline = re.findall(r"`(pip install [^`]+)`", page.read_text(encoding="utf-8"))
    installed = set().union(*map(provided, ["pip install .", *commands(page, "pip install "), *inline]))
    for block in blocks_of(page):
        if block.language == "python":
            tree = ast.parse(block.code)
            imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
            imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
            for module in {module.split(".")[0] for module in imported} - sys.stdlib_module_names:
                sources = {distribution(found) for found in MODULES.get(module, [module])}
                assert sources & installed, f"{name}, line {block.line}: {module} is not installed by any line of it"
        elif any(line.startswith("onmf ") for line in block.commands):
            assert "typer" in installed, f"{name}, line {block.line}: onmf needs the extra cli"


def test_every_line_that_is_only_checked_is_checked():
    lines = {line for page in PAGES.values() for line in commands(page, CHECKED)}
    assert all(line.startswith(("make ", "pip install ")) or (ROOT / line).exists() for line in lines)


@pytest.mark.long("the pages of the docs")
def test_formulas_are_drawn_into_the_page(monkeypatch):
    """No script and no font is needed to read them. Their LaTeX is there for those who cannot see them."""
    pytest.importorskip("ziamath", reason="ziamath, which draws the formulas, is not installed")
    monkeypatch.syspath_prepend(ROOT / "docs" / "_extensions")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # ziamath finds its font in an old way
        formulas = importlib.import_module("formulas")
    drawn = formulas.draw(r"\frac{a}{b}", inline=True)
    assert drawn.startswith("<svg")
    assert drawn.count("<path") == 2
    assert "black" not in drawn, "invisible on a dark page"
    assert 'aria-label="\\frac{a}{b}"' in drawn
    for page in (ROOT / "docs").glob("*/*.md"):
        for latex in re.findall(r"\$\$(.+?)\$\$", page.read_text(encoding="utf-8"), flags=re.DOTALL):
            formulas.draw(latex, inline=False)
