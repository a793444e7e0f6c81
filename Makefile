# Two commands do all set-up: `make demo` (base install, no torch) and `make test` (everything).
PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet -c constraints.txt
PACKAGES := datasets features predictor training scheduler serving

.PHONY: demo test lint typecheck format base dev clean
.DEFAULT_GOAL := help

help:
	@echo "make demo       base install (no torch), then a prediction and a placement over HTTP"
	@echo "make test       installs everything, the gnn extra too (about 2 GB in $(VENV)), runs the whole suite"
	@echo "make lint       ruff and the floor contracts;  make typecheck: mypy strict;  make format"

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) not found; set PYTHON=/path/to/python3.11" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing the base (about 1 GB in $(VENV), no torch) ..."
	$(PIP) -e .
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing everything, the gnn extra too: torch's CPU build, about 2 GB in $(VENV) ..."
	$(PIP) -e '.[all]'
	@touch $@ $(VENV)/.base

base: $(VENV)/.base
dev: $(VENV)/.dev

demo: base
	$(BIN)/eaco demo

test: dev
	$(BIN)/pytest

lint: dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/lint-imports

typecheck: dev
	$(BIN)/mypy

format: dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .eaco .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
