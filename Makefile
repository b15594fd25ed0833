# Every target sets up what it needs in .venv by itself: Python 3.11 or newer, make and a
# package index that pip can reach are enough. Nothing here needs Docker. Only `make test-servers`
# needs Debian packages, which it installs as root.

VENV := .venv
PY   := $(VENV)/bin/python
PIP  := $(PY) -m pip --disable-pip-version-check install -qq -c constraints.txt

# Compiled modules are kept, whatever the shell says: the processes of the tests import them often.
unexport PYTHONDONTWRITEBYTECODE
# What a process prints waits in its buffer, whatever the shell says: nobody's shell hides that.
unexport PYTHONUNBUFFERED

# Stamps: a file is younger than what it was made from, or it is made again.
STAMP_VENV := $(VENV)/.stamp-venv
STAMP_DEMO := $(VENV)/.stamp-demo
STAMP_DEV  := $(VENV)/.stamp-dev

# Most tests wait for servers and processes, so that more of them run than there are cores.
JOBS ?= 5
SHUFFLE ?=
PYTEST = $(PY) -m tests.tidy_run $(PY) -m pytest -n $(JOBS) --dist loadgroup $(SHUFFLE:%=--shuffle %)
N ?= 100000
TIME ?= 10min

# The first interpreter that starts and is new enough; `make PYTHON=...` chooses another.
CANDIDATES := python3.13 python3.12 python3.11 python3
PYTHONS ?= python3.11 python3.12 python3.13 python3.14
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))

# Modules whose branches must all be covered.
CORE := errors extras compat policy core/* engine/* attempt records markers functions once
CORE_STORES := __init__ base browse connections adapters memory memory_browse sqlite/* redis/* postgres/*
# The tests that cover them, and only these are traced: tracing doubles their time.
UNTRACED := tests/unit/core/test_machine_exploration.py
TRACED := $(filter-out $(UNTRACED),$(wildcard tests/unit/test_*.py tests/unit/core/test_*.py)) \
          $(addprefix tests/unit/,engine stores observe inspection) tests/stores/redis tests/stores/postgres tests/stores/django \
          tests/inspection tests/doctor/test_startup.py tests/functions tests/observe/test_metrics.py
comma := ,
empty :=
CORE_FILES := $(subst $(empty) ,$(comma),$(strip $(CORE:%=src/oncekey/%.py) src/oncekey/observe/* $(CORE_STORES:%=src/oncekey/stores/%.py)))

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo demo-serve tour check test tests test-all test-without-fast-paths test-pythons test-servers \
        generate lint types types-src coverage outside client orders bench bench-ops bench-sizes bench-scale bench-where walk defects simulate faults failovers soak docs clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-23s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(STAMP_DEMO) ## A payment service over HTTP, and requests that arrive twice; it ends by itself
	@$(PY) -m examples.demo

demo-serve: $(STAMP_DEMO) ## The same service, until Ctrl-C, with commands to try
	@$(PY) -m examples.demo --serve

tour: $(STAMP_DEMO) ## A guided tour of protected functions; it ends by itself
	@$(PY) -m examples.tour

# Types and tests run side by side.
test: lint ## Everything a change must pass: linters, types, tests, the core covered
	@$(MAKE) --no-print-directory -j 3 types tests-untraced tests-traced-quietly

check: lint ## The quick part of it, for every save: linters, types of src, tests without servers
	@$(MAKE) --no-print-directory -j 2 types-src tests-without-servers

test-all: export HYPOTHESIS_PROFILE := heavy
test-all: lint types coverage test-without-fast-paths defects ## The same with many more cases, all of it covered, without fast paths, and the planted defects

test-pythons: ## The tests on each of PYTHONS that starts, in environments of their own
	@tried=; for python in $(PYTHONS); do \
	  "$$python" -c '$(NEW_ENOUGH)' 2>/dev/null || { echo "$$python does not start or is too old: not tried."; continue; }; \
	  version=$$("$$python" -c 'import platform; print(platform.python_version())'); \
	  echo "Python $$version"; tried=1; \
	  $(MAKE) --no-print-directory tests VENV=build/python-$$version PYTHON="$$python" || exit 1; \
	done; \
	[ -n "$$tried" ] || { echo "None of PYTHONS starts: nothing was tried." >&2; exit 1; }

generate: $(STAMP_DEV) ## Write the sync files that are generated from async ones, and the API pages
	$(PY) -m tools.async_to_sync
	$(PY) -m tools.api_reference

lint: $(STAMP_DEV) ## ruff (rules and format), generated files and the direction of imports
	$(PY) -m tools.async_to_sync --check
	$(PY) -m tools.api_reference --check
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) $(VENV)/bin/lint-imports

types: $(STAMP_DEV) ## mypy (strict) and pyright
	$(PY) -m mypy
	$(PY) -m basedpyright --pythonpath $(PY)

types-src: $(STAMP_DEV)
	$(PY) -m mypy src

# The few that are traced run beside the many that are not, and tell what came of them in the end.
tests: $(STAMP_DEV) ## The tests, with 100 % of the branches covered in the core
	@$(MAKE) --no-print-directory -j 2 tests-untraced tests-traced-quietly

tests-traced-quietly:
	@$(MAKE) --no-print-directory --output-sync tests-traced

tests-traced: JOBS := 2
tests-traced:
	$(PY) -m coverage erase
	$(PYTEST) --cov --cov-report= --cov-fail-under=0 $(TRACED)
	$(PY) -m coverage report --include='$(CORE_FILES)' --fail-under=100

tests-untraced: JOBS := 4
tests-untraced:
	$(PYTEST) --ignore=tests/system $(TRACED:%=--ignore=%)

tests-without-servers: $(STAMP_DEV)
	$(PYTEST) -rfE --no-servers tests/unit tests/stores tests/doctor tests/inspection tests/fuzz tests/sync_and_async

coverage: $(STAMP_DEV) ## The tests, with 100 % of the branches covered in the core and 90 % in all
	$(PY) -m coverage erase
	$(PYTEST) --ignore=tests/system --cov --cov-report=
	$(PY) -m coverage report
	$(PY) -m coverage report --include='$(CORE_FILES)' --fail-under=100

STORES_AND_SURFACES := $(addprefix tests/,unit stores doctor inspection faults isolation processes \
                       functions http jobs messages outbox events cli dashboard observe)
test-without-fast-paths: export HYPOTHESIS_PROFILE := modest
test-without-fast-paths: $(STAMP_DEV) ## Stores and surfaces without wires, crowds, group commits and the cache
	$(PYTEST) --without-fast-paths $(STORES_AND_SURFACES)

test-servers: $(STAMP_DEV) ## What needs Debian packages (RabbitMQ, PgBouncer, Prometheus, nginx, Caddy, Chromium, npm; root installs them) or pins of its own
	@$(PY) -m tests.system.packages
	$(PYTEST) tests/system

outside: $(STAMP_DEV) ## Test suites of Starlette, FastAPI, Flask, Django and Celery around our code
	$(PY) -m tests.outside --write

client: ## Pack the client for browsers as a package of npm, build/client/oncekey-events-*.tgz
	rm -rf build/client && mkdir -p build/client/package
	cp npm/oncekey-events/* src/oncekey/events/client/oncekey-events.js build/client/package
	cd build/client && npm pack ./package --silent && cp oncekey-events-*.tgz oncekey-events.tgz

orders: client ## Build the page of examples/orders with the packed client, build/orders
	rm -rf build/orders/node_modules/oncekey-events && mkdir -p build/orders && cp -r examples/orders/page/* build/orders
	cd build/orders && npm install --no-package-lock --no-audit --no-fund --silent && npm run build --silent

bench: $(STAMP_DEV) ## Measure against raw limits and peers
	$(PY) -m bench

bench-ops: $(STAMP_DEV) ## Measure how records are listed and counted among a million
	$(PY) -m bench.ops

bench-sizes: $(STAMP_DEV) ## Measure bytes, round trips and commits per record
	$(PY) -m bench.sizes

bench-scale: $(STAMP_DEV) ## Measure calls among ten million records, and of one to eight processes
	$(PY) -m bench.scale

bench-where: $(STAMP_DEV) ## Count bytecode steps and instructions of calls, by package and function
	$(PY) -m bench.where

walk: $(STAMP_DEV) ## Trace six calls: how many functions and files each goes through
	$(PY) -m bench.walk

defects: $(STAMP_DEV) ## Plant each known defect and see its test fail (needs the packages of test-servers)
	@$(PY) -m tests.system.packages
	$(PY) -m tests.defects

simulate: $(STAMP_DEV) ## Simulate N schedules of faults, 100,000 unless said
	$(PY) -m tests.simulation --seeds $(N) --workers 2

faults: $(STAMP_DEV) ## Kill, pause and cut off real processes and servers, and count effects
	@$(PY) -m tests.system.packages pgbouncer mariadb-server
	$(PY) -m tests.faults.matrix --write

failovers: $(STAMP_DEV) ## Thirty fail-overs each of Patroni, Sentinel and a Redis Cluster, under load
	$(PY) -m tests.faults.matrix --failovers 30 --write

soak: $(STAMP_DEV) ## The same at random for TIME, 10 minutes unless said
	$(PY) -m tests.faults.matrix --soak $(TIME) --write

docs: $(STAMP_DEV) ## Build the documentation into docs/_build/html
	$(PY) -m sphinx -W -n --keep-going -q -b html docs docs/_build/html

clean: ## Remove the environment and everything generated
	rm -rf $(VENV) build dist docs/_build htmlcov .coverage .coverage.* .hypothesis
	rm -rf .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests bench examples docs -name __pycache__ -type d -prune -exec rm -rf {} +

# --------------------------------------------------------------------- environment

$(STAMP_VENV):
	@python='$(PYTHON)'; \
	if [ -n "$$python" ]; then \
	  "$$python" -c '$(NEW_ENOUGH)' || { echo "Oncekey needs Python 3.11 or newer, and PYTHON=$$python is not." >&2; exit 1; }; \
	else \
	  for candidate in $(CANDIDATES); do \
	    if "$$candidate" -c '$(NEW_ENOUGH)' >/dev/null 2>&1; then python=$$candidate; break; fi; \
	  done; \
	  [ -n "$$python" ] || { echo "Oncekey needs Python 3.11 or newer, and none of these is: $(CANDIDATES)." >&2; exit 1; }; \
	fi; \
	rm -rf $(VENV); \
	if "$$python" -c 'import ensurepip, venv' 2>/dev/null; then \
	  "$$python" -m venv $(VENV); \
	elif "$$python" -c 'import virtualenv' 2>/dev/null; then \
	  echo "$$python has no ensurepip, so virtualenv makes $(VENV)."; \
	  "$$python" -m virtualenv -q $(VENV); \
	else \
	  echo "$$python can make no environment: install its venv package (python3-venv) or virtualenv." >&2; exit 1; \
	fi
	@touch $@

$(STAMP_DEMO): $(STAMP_VENV) pyproject.toml constraints.txt
	@echo "Setting up $(VENV) ..."
	@$(PIP) hatchling editables
	@$(PIP) --no-build-isolation -e '.[examples]'
	@touch $@

$(STAMP_DEV): $(STAMP_DEMO)
	@echo "Adding the tools of development to $(VENV) ..."
	@$(PIP) setuptools # builds celery-once, and comes with Python only up to 3.11
	@$(PIP) --no-build-isolation -e '.[dev]'
	@$(PY) -m tests.servers.installation
	@touch $@
