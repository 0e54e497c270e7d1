# One line each; `make run` and `make test` need only python3 and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
SCENARIO ?= scenarios/qwen3-235b-h100x256.yaml

.PHONY: setup run test lint notebooks accuracy bench clean

setup: $(VENV)/.stamp-dev

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# The package alone, enough to run it.
$(VENV)/.stamp: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

# Plus what tests, lint and notebooks need.
$(VENV)/.stamp-dev: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	touch $(VENV)/.stamp $@

run: $(VENV)/.stamp
	$(BIN)/moesim estimate $(SCENARIO)

test: $(VENV)/.stamp-dev
	$(BIN)/python -m pytest -n auto --dist worksteal $(ARGS)

lint: $(VENV)/.stamp-dev
	$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy && $(BIN)/lint-imports

# Notebooks are percent files; the .ipynb is generated, executed and checked.
notebooks: $(VENV)/.stamp-dev
	@set -e; for f in $(wildcard notebooks/*.py); do $(BIN)/jupytext --quiet --to ipynb $$f; done; \
	if ls notebooks/*.ipynb >/dev/null 2>&1; then $(BIN)/python -m pytest -o addopts= --nbmake --overwrite notebooks/*.ipynb; fi

# Tables of docs/accuracy*.md again. COLLECTIVES is a measured table from elsewhere; without it, its page stays.
accuracy: $(VENV)/.stamp-measurements
	$(BIN)/python docs/make_accuracy_kernels.py
	$(if $(COLLECTIVES),$(BIN)/python docs/make_accuracy_collectives.py $(COLLECTIVES))
	$(BIN)/python docs/make_accuracy_fabrics.py
	$(BIN)/python docs/make_accuracy_targets.py
	$(BIN)/python docs/make_accuracy_ablations.py
	$(BIN)/python docs/make_cases.py
	$(BIN)/python docs/make_accuracy.py

$(VENV)/.stamp-measurements: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev,measurements]"
	touch $(VENV)/.stamp $(VENV)/.stamp-dev $@

bench: $(VENV)/.stamp-dev
	@set -e; for f in $(wildcard benchmarks/*.py); do $(BIN)/python $$f; done

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
