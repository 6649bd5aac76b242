# On a fresh machine, run `make demo` or `make test`. Each target installs its requirements in .venv.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
JOBS    ?= 2
MINUTES ?= 10
SEED    ?= 1
PYTEST := $(BIN)/python -m pytest --numprocesses $(JOBS) --dist worksteal

# Tests that run every kernel, on all its types and on odd shapes.
KERNELS := $(addprefix tests/, contract/test_backends.py contract/test_bregman.py contract/test_paper.py \
             contract/test_parts.py test_blocks.py test_bounds.py test_estimator.py test_starts.py test_optima.py \
             test_properties.py test_select.py test_sklearn.py test_sound.py test_stream.py)

.PHONY: demo test bounds check docs pictures paper bench fuzz sanitize clean

demo: $(VENV)/.demo  ## cluster the embedded corpus, print and draw the result
	$(BIN)/python examples/docstrings.py demo-output

test: $(VENV)/.dev  ## run the tests; those on the paper's data run if $$ONMF_DATA points to it
	$(PYTEST)

# numba's cache does not distinguish kernels with bounds checks from others, so they get a separate cache.
bounds: $(VENV)/.dev  ## run the tests of the kernels with every index checked
	NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=$(CURDIR)/$(VENV)/numba-bounds \
		$(PYTEST) $(KERNELS) -k "not well_separated and not papers_table"

check: $(VENV)/.dev docs  ## lint, types, docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.dev  ## build the documentation in docs/_build/html; warnings are errors
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html

pictures: docs  ## recreate the pictures of README and docs; needs Chromium, and the paper's data in $$ONMF_DATA
	$(BIN)/python docs/pictures.py

paper: $(VENV)/.dev  ## recreate the tables and figures of the docs from the data in $$ONMF_DATA
	$(BIN)/onmf reproduce all --out docs/_build/paper
	$(BIN)/onmf reproduce family --out docs/_build/paper
	cp docs/_build/paper/*.md docs/_build/paper/*.png docs/paper/

bench: $(VENV)/.dev  ## benchmark against other libraries; writes the tables and the figure of the docs
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[bench]"
	$(BIN)/python -m benchmarks

fuzz: $(VENV)/.dev  ## fit odd data and read damaged files for some minutes: make fuzz MINUTES=10 SEED=1
	$(BIN)/python -m fuzz --minutes $(MINUTES) --seed $(SEED)

sanitize:  ## run all GPU kernels on odd sizes under compute-sanitizer; needs a GPU
	compute-sanitizer --tool memcheck --error-exitcode 1 $(PYTHON) benchmarks/sanitize.py
	compute-sanitizer --tool racecheck --error-exitcode 1 $(PYTHON) benchmarks/sanitize.py

clean:  ## remove everything that make created
	rm -rf $(VENV) docs/_build docs/api demo-output fuzz-failures .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("onmf needs Python 3.11 or newer; name one: make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[report]"
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	@touch $@ $(VENV)/.demo
