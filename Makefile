# A fresh clone needs Python 3.11 or later and two commands: `make demo` and `make test`.

PYTHON ?= python3
JOBS ?= 2
ARGS ?=
RELEASES ?= 0.26.0 0.27.0 0.32.0

VENV := .venv
BIN := $(VENV)/bin
PINS := setup.cfg pyproject.toml constraints.txt
PIP_INSTALL := $(BIN)/python -m pip install --quiet --quiet --constraint constraints.txt

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo test notebooks conformance catalog docs lint format clean

help: ## print this list
	@echo 'stateat: a deterministic simulator that checks every cached recurrent state'
	@echo
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo '  PYTHON=python3.12  another interpreter (3.11 or later) for the first run'
	@echo '  ARGS="-k cache"    more arguments for pytest;  JOBS=2  its processes'

demo: $(VENV)/package ## install the package, replay a scenario under load and draw it
	@mkdir -p build
	@$(BIN)/stateat replay scenarios/load/demo.yaml --plot build/demo.png
	@echo
	@echo 'The picture is in build/demo.png.'
	@echo 'The same on a recorded trace of conversations:'
	@echo '  $(BIN)/stateat replay scenarios/load/mooncake-conversation.yaml --plot build/mooncake.png'

test: $(VENV)/dev ## install the package with its test tools and run the tests
	@$(BIN)/python -m pytest -n $(JOBS) $(ARGS)

notebooks: $(VENV)/dev ## execute the notebooks in full, into build/notebooks
	@$(BIN)/python notebooks/run.py

conformance: $(VENV)/dev ## install three releases of vLLM and compare the engine with them, live
	@$(BIN)/stateat vllm install $(RELEASES)
	@$(BIN)/python -m pytest -m live $(ARGS)

catalog: $(VENV)/package ## write scenarios/README.md from the heads of the files
	@$(BIN)/stateat list scenarios --markdown > scenarios/README.md

docs: $(VENV)/package ## print the tables of docs/rules.md from the rules' records
	@$(BIN)/python -m stateat.sim.releases.pages docs/rules.md

lint: $(VENV)/dev ## check format, lint and types
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@mkdir -p build/types && ln -sfn ../.. build/types/stateat
	@MYPYPATH=build/types $(BIN)/mypy --strict -p stateat.sim -p stateat.oracle -p stateat.kernels

format: $(VENV)/dev ## format the code, mend what lint can mend, take outputs out of notebooks
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .
	@$(BIN)/python notebooks/run.py --strip

clean: ## remove all that this file makes
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find sim oracle kernels tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamps: an empty environment, one with the package, one with the development tools too.

$(VENV)/created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "stateat needs Python 3.11 or later, but '$(PYTHON)' says: $$($(PYTHON) --version 2>&1 | head -n 1)" >&2; \
	  echo "Name another: make $(or $(firstword $(MAKECMDGOALS)),demo) PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "'$(PYTHON)' lacks venv or ensurepip (on Debian and Ubuntu: apt install python3-venv)" >&2; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(VENV)/package: $(VENV)/created $(PINS)
	@echo 'Installing stateat into $(VENV)'
	@$(PIP_INSTALL) --editable .
	@touch $@

$(VENV)/dev: $(VENV)/created $(PINS)
	@echo 'Installing stateat and its development tools into $(VENV)'
	@$(PIP_INSTALL) --editable '.[dev,states]'
	@touch $(VENV)/package $@
