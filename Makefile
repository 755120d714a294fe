# Nothing is needed but make and a Python of 3.11 or later; everything else goes into .venv.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CHECKED := $(wildcard mappings schemas service probmap_client tests scripts benchmarks examples)
NEW_ENOUGH := import ensurepip, sys; sys.exit(sys.version_info < (3, 11))

# The first that works and is new enough; `make PYTHON=/path/to/python` overrides.
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11 python; do \
	if $$python -c '$(NEW_ENOUGH)' >/dev/null 2>&1; then echo $$python; break; fi; done)

.PHONY: help setup serve browser test check format readme bench clean

help: ## Lists these targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

setup: $(STAMP) ## Makes the environment in .venv, with .venv/bin/probmap

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "probmap needs Python 3.11 or later with venv; none was found (make PYTHON=/path/to/python)" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[server,arrow,otel,plot,ray,dev]'
	@touch $(STAMP)

serve: setup ## Starts the server on http://127.0.0.1:8000, on the best device there is
	$(BIN)/probmap serve $(ARGS)

browser: ## Gets Chromium and axe-core for the tests of the playground, where they are missing
	@scripts/browser.sh

test: setup browser ## Runs the whole test suite
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile -m "not alone" $(ARGS)
	$(BIN)/python -m pytest -m alone $(ARGS) || test $$? -eq 5 # 5: ARGS left none of these

check: setup ## Checks format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy $(CHECKED)

format: setup ## Formats the code and fixes what lint can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

readme: setup ## Rewrites the generated parts of README.md
	$(BIN)/python scripts/readme_table.py

bench: setup ## Runs every benchmark there is, or only one: make bench ONLY=engine
	@for script in $(if $(ONLY),benchmarks/$(ONLY).py,$(shell grep -l __main__ benchmarks/*.py | grep -Ev "_server|soak")); do \
		echo "== $$script"; PYTHONPATH=.:tests $(BIN)/python $$script $(ARGS) || exit 1; done

clean: ## Removes the environment and every cache
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist tests/browser/node_modules
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
