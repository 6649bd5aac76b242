"""House rules as tests: the public names, the imports, and the layers of modules."""

import ast
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csc_array, csr_array, issparse

import onmf
import onmf.backend
import onmf.cells
import onmf.data
import onmf.datasets
import onmf.fit
import onmf.plot
import onmf.report
import onmf.reproduce
import onmf.text

SOURCE = Path(onmf.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))

# Data flows downwards: a module imports only from those before it. The modules of a package may import one another,
# except those of onmf.io: some of them know models and some must not, so each has its own place in the list.
LAYERS = [
    ("_version", "io.__init__"),
    ("interrupt",),
    ("io.csv_file", "io.rules"),
    ("io.isolated_readers", "io.limits"),
    ("io.isolate", "io.files"),
    ("warn",),
    ("arrays",),
    ("kernels", "old_names"),
    ("functions",),
    ("divergence",),
    ("backend",),
    ("data",),
    ("fit",),
    ("kinds", "callbacks"),
    ("io.model_file",),
    ("estimator",),
    ("metrics", "hierarchy", "naming"),
    ("plot", "confidence", "surprise"),
    ("select", "paper", "datasets"),
    ("door",),
    ("report",),
    ("cells", "image", "table", "text"),
    ("reproduce",),
    ("cli",),
    ("__main__",),
]


def layer_of(module):
    package, name = [*module.split(".")[1:], "__init__"][:2]
    return next(i for i, names in enumerate(LAYERS) if package in names or f"{package}.{name}" in names)


def statements(path):
    """All nodes of a module, except imports that only the type checker sees."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    return list(ast.walk(tree))


def imports(path):
    for node in statements(path):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            if node.module in ("onmf", "onmf.io"):
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
            else:
                yield node.module
        elif isinstance(node, ast.ImportFrom) and node.level == 1 and path.parent.name == "io":
            yield f"onmf.io.{node.module}"
        elif isinstance(node, ast.ImportFrom) and node.level > len(path.relative_to(SOURCE).parts) - 1:
            yield "onmf." + (node.module or node.names[0].name)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("package", ["io", "image"])
def test_isolated_readers_import_nothing_of_the_package(package):
    """Their process would take a second longer to start."""
    assert not [name for name in imports(SOURCE / package / "isolated_readers.py") if name.startswith("onmf")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_imports_only_from_above(path):
    here = ".".join(["onmf", *path.relative_to(SOURCE).with_suffix("").parts])
    if here == "onmf.__init__":
        return
    for module in imports(path):
        if module.startswith("onmf."):
            assert layer_of(module) < layer_of(here), f"{here} imports {module}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_private_name_of_another_module(path):
    """Neither imported, nor reached through an object: attributes with an underscore belong to the module itself."""
    own = set(re.findall(r"(?:def|class|self\.|cls\.|^)\s*(_[a-z]\w*)", path.read_text(), re.MULTILINE))
    allowed = own | {"_replace", "_fields", "_asdict", "_getframe", "_max_workers", "_init_callback_context"}
    for node in statements(path):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("onmf"):  # "." is the own package
            private = [alias.name for alias in node.names if re.match(r"_[a-z]", alias.name)]
            assert not private, f"imports {private} from {node.module}"
        if isinstance(node, ast.Attribute) and re.match(r"_[a-z]", node.attr) and node.attr not in allowed:
            owner = ast.unparse(node.value)
            assert owner in ("self", "cls", "super()"), f"{owner}.{node.attr}"


def test_the_map_names_every_module():
    lines = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text().splitlines()
    rows = {line.split("`")[1]: line for line in lines if line.startswith("| `")}
    for path in FILES:
        module, folder = str(path.relative_to(SOURCE)), str(path.parent.relative_to(SOURCE))
        if path.name in ("__init__.py", "__main__.py", "_version.py"):
            continue
        row = "".join(rows.values()) if folder == "." else rows.get(f"{folder}/", "")
        assert f"`{path.name}`" in row, f"{module} is not on the map of CONTRIBUTING.md"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_only_public_scikit_learn(path):
    private = [m for m in imports(path) if m.startswith("sklearn") and re.search(r"\._", m)]
    assert not private
    names = re.findall(r"from sklearn[\w.]* import ([^\n(]+)", path.read_text())
    assert not [n for line in names for n in line.split(",") if n.strip().startswith("_")]


def test_all_is_complete_and_real():
    for module in (
        onmf,
        onmf.metrics,
        onmf.divergence,
        onmf.backend,
        onmf.data,
        onmf.datasets,
        onmf.fit,
        onmf.plot,
        onmf.report,
        onmf.reproduce,
        onmf.text,
    ):
        for name in module.__all__:
            assert hasattr(module, name)


def test_public_functions_are_documented():
    for module in (onmf, onmf.metrics, onmf.cells, onmf.datasets, onmf.plot, onmf.report, onmf.reproduce, onmf.text):
        for name in module.__all__:
            if callable(member := getattr(module, name)):
                assert member.__doc__, name


def test_version_and_show_versions(capsys):
    assert re.match(r"\d+\.\d+", onmf.__version__)
    onmf.show_versions()
    out = capsys.readouterr().out
    for name in ("onmf", "python", "numpy", "numba", "scikit-learn"):
        assert name in out


@pytest.mark.parametrize("container", [np.asarray, csr_array, csc_array])
def test_the_papers_orientation(counts, container):
    X = counts[0]
    for function, loss in ((onmf.kl_onmf, "kullback-leibler"), (onmf.fro_onmf, "frobenius")):
        found = function(container(X.T), 3)
        model = onmf.ONMF(3, beta_loss=loss).fit(X)
        assert found.W.shape == (X.shape[1], 3)
        assert issparse(found.H)
        assert found.H.shape == (3, len(X))
        assert pytest.approx(model.cluster_centers_.T) == found.W
        assert (found.H @ found.H.T).toarray() == pytest.approx(np.eye(3), abs=1e-12)
        assert (found.n_iter, found.objective) == (model.n_iter_, pytest.approx(model.reconstruction_err_))
        Y = found.W @ found.H.toarray()
        if loss == "frobenius":
            assert np.sum((X.T - Y) ** 2) == pytest.approx(found.objective)
        else:
            assert onmf.metrics.kl_divergence(X.T, Y) == pytest.approx(found.objective)
        again = function(container(X.T), 3, init=found.W)
        assert again.n_iter == 2
        assert again.parameters["init"].shape == (3, X.shape[1])


def test_the_papers_orientation_of_lists_and_errors(counts):
    X = counts[0].T
    given = onmf.kl_onmf(X, 3)
    assert onmf.kl_onmf(X.tolist(), 3).labels.tolist() == given.labels.tolist()
    assert onmf.kl_onmf(X, 3, init=given.W.tolist()).n_iter == 2
    bad = X.astype(float)
    bad[2, 5] = np.nan
    with pytest.raises(ValueError, match=r"X\[2, 5\] = nan"):
        onmf.kl_onmf(bad, 3)
    with pytest.raises(ValueError, match="n_samples=60 should be >= n_clusters=61"):
        onmf.kl_onmf(X, 61)
