# On a fresh machine, run `make demo` or `make test`. Each target installs its requirements in .venv.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
LOWEST := .venv-lowest
# Tests that wait for something leave a core idle: three at a time take a tenth less on two cores than two.
JOBS    ?= 3
MINUTES ?= 10
SEED    ?= 1
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check
PYTEST := $(BIN)/python -m pytest --numprocesses $(JOBS) --dist worksteal

# uv installs in seconds what takes pip minutes. pip does it where uv does not know the package index.
install = $(BIN)/uv pip install --quiet --python $(BIN)/python --editable $(1) || $(PIP) --editable $(1)

# Bytecode is written by the first import. Where that is forbidden, each of the hundreds of processes that the tests
# start would compile all packages again, in 5 seconds instead of 2.
unexport PYTHONDONTWRITEBYTECODE

# Tests that run every kernel, on all its types and on odd shapes.
KERNELS := $(addprefix tests/, contract/test_backends.py contract/test_bregman.py contract/test_paper.py \
             contract/test_parts.py test_blocks.py test_bounds.py test_estimator.py test_starts.py test_optima.py \
             test_properties.py test_select.py test_sound.py test_stream.py)

.PHONY: demo test test-all test-lowest durations planted bounds check lint workflows docs pictures paper bench fuzz sanitize clean

demo: $(VENV)/.demo  ## cluster the embedded corpus, print the clusters, and write the report that README shows
	$(BIN)/python examples/docstrings.py demo-output

test: $(VENV)/.dev  ## run most tests, in six minutes; those on the paper's data run if $$ONMF_DATA points to it
	$(PYTEST) --short -p no:randomly

test-all: $(VENV)/.dev  ## run all tests, in random order: make test-all SEED=1
	$(PYTEST) --randomly-seed=$(SEED)

durations: $(VENV)/.dev  ## say where the time of make test goes, in docs/development/durations.md
	$(PYTEST) --short -p no:randomly -p tests.durations

planted: $(VENV)/.dev  ## plant faults one by one, and show which tests catch them: make planted FAULTS="a b"
	$(BIN)/python -m tests.planted $(FAULTS)

# Old packages warn that newer ones, on which they depend, will change. That is not for us to mend. The cache of the
# kernels is separate, since numba empties the cache of another version of numba.
test-lowest: $(LOWEST)/.done  ## run the tests with the oldest versions allowed; LOWEST_TESTS=tests/test_x.py for some
	NUMBA_CACHE_DIR=$(CURDIR)/$(LOWEST)/numba $(LOWEST)/bin/python -m pytest -p no:randomly \
		--numprocesses $(JOBS) --dist worksteal \
		-W ignore::DeprecationWarning -W ignore::PendingDeprecationWarning -W ignore::FutureWarning $(LOWEST_TESTS)

# numba's cache does not distinguish kernels with bounds checks from others, so they get a separate cache. They are
# optimised less, since they run briefly.
bounds: $(VENV)/.dev  ## run the tests of the kernels with every index checked
	NUMBA_BOUNDSCHECK=1 NUMBA_OPT=1 NUMBA_CACHE_DIR=$(CURDIR)/$(VENV)/numba-bounds \
		$(PYTEST) -p no:randomly $(KERNELS) -k "not well_separated and not papers_table"

check: lint docs workflows  ## lint, types, docs, workflows

lint: $(VENV)/.dev  ## lint and types
	$(BIN)/ruff check .
	$(BIN)/ruff check --preview --select PLW1514 src tests fuzz examples  # text without a named encoding reads differently on Windows
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# actionlint is a program of its own and not on every package index, so it runs where it is found.
workflows: $(VENV)/.dev  ## check the workflows of the public host: form, and what an attacker could use
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/[!c]*.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.citation-file-format CITATION.cff
	$(BIN)/zizmor --quiet --offline --persona auditor .github
	if command -v actionlint > /dev/null; then actionlint; fi

docs: $(VENV)/.dev  ## build the documentation in docs/_build/html; warnings are errors
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html

pictures: docs  ## recreate the pictures of README and docs; needs Chromium, and the paper's data in $$ONMF_DATA
	$(BIN)/python docs/pictures.py

paper: $(VENV)/.dev  ## recreate the tables and figures of the docs from the data in $$ONMF_DATA
	$(BIN)/onmf reproduce all --out docs/_build/paper
	$(BIN)/onmf reproduce family --out docs/_build/paper
	cp docs/_build/paper/*.md docs/_build/paper/*.png docs/paper/

bench: $(VENV)/.dev  ## benchmark against other libraries; writes the tables and the figure of the docs
	$(call install,".[bench]")
	$(BIN)/python -m benchmarks

fuzz: $(VENV)/.dev  ## fit odd data and read damaged files for some minutes: make fuzz MINUTES=10 SEED=1
	$(BIN)/python -m fuzz --minutes $(MINUTES) --seed $(SEED)

sanitize:  ## run all GPU kernels on odd sizes under compute-sanitizer; needs a GPU
	compute-sanitizer --tool memcheck --error-exitcode 1 $(PYTHON) benchmarks/sanitize.py
	compute-sanitizer --tool racecheck --error-exitcode 1 $(PYTHON) benchmarks/sanitize.py

clean:  ## remove everything that make created
	rm -rf $(VENV) $(LOWEST) docs/_build docs/api docs/examples demo-output fuzz-failures
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("onmf needs Python 3.11 or newer; name one: make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml | $(VENV)/bin/uv
	$(call install,".[report]")
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/uv
	$(call install,".[dev]")
	@touch $@ $(VENV)/.demo

$(VENV)/bin/uv: | $(VENV)/bin/python
	$(PIP) uv

# loompy has no wheel. Every other package must have one: old source distributions do not build with new tools.
$(LOWEST)/.done: pyproject.toml | $(VENV)/bin/uv
	$(BIN)/uv venv --quiet --clear --python 3.11 $(LOWEST)
	$(BIN)/uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct --only-binary :all: \
		--no-binary loompy --no-binary onmf --editable ".[all,test]"
	@touch $@
