# `make run` starts Headgate from a fresh clone; `make check test` is what CI runs.
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
TESTS ?=
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install
LOCK := $(BIN)/pip-compile --quiet --generate-hashes --strip-extras --allow-unsafe --no-header \
  --no-annotate --no-emit-index-url --no-emit-trusted-host --no-emit-find-links \
  --build-deps-for=editable

.PHONY: run test test-unit test-s3 check format bench bench-kafka bench-mqtt bench-sqs bench-amqp bench-storage bench-pipeline soak ci-deps dist lock clean
.DEFAULT_GOAL := run

run: .venv/run  ## install into .venv and start with embedded defaults
	$(BIN)/headgate serve

# Debian keeps PostgreSQL's programs and mosquitto off the PATH.
test test-s3 soak: export PATH := $(PATH):$(lastword $(wildcard /usr/lib/postgresql/*/bin)):/usr/sbin

# Hundreds of processes are started: none compiles again what another has compiled.
test test-unit test-s3 soak: export PYTHONDONTWRITEBYTECODE :=

# Tests wait for half of their time: for leases, JVMs, the disk. Two workers keep one core busy.
WORKERS ?= 4

# All workers must see the same order of tests.
test: export PYTHONHASHSEED := 0
test: .venv/dev  ## everything but the soak tests
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup $(TESTS)

test-unit: export PYTHONHASHSEED := 0
test-unit: .venv/dev  ## the tests that start no process and no server: under a minute on two cores
	$(BIN)/python -m pytest --unit -q -n 2 --dist loadgroup $(TESTS)

test-s3: export PYTHONHASHSEED := 0
test-s3: .venv/dev  ## the interop suites once more, with a bucket as the gateway's disk
	HEADGATE_TEST_STORAGE=s3 $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup tests/interop

check: .venv/dev  ## format, lint, types, imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench bench-kafka bench-mqtt bench-sqs bench-amqp bench-storage bench-pipeline: .venv/dev  ## the published figures, each beside its peer; more arguments in BENCH
	$(BIN)/python -m benchmarks $(patsubst bench-%,%,$(filter bench-%,$@)) $(BENCH)

soak: .venv/dev  ## hours: 100 kills, a million hostile packets of each kind, properties at length, R1 to R8, L2
	HYPOTHESIS_PROFILE=soak $(BIN)/python -m pytest -m soak --timeout 7200 tests
	HYPOTHESIS_PROFILE=soak $(BIN)/python -m pytest -n 2 --dist loadgroup -m "hypothesis and not soak" --timeout 7200 tests
	HEADGATE_TEST_STORAGE=s3 $(BIN)/python -m pytest tests/interop
	$(BIN)/python -m benchmarks r1 r2 r3 r4 r5 r6 r7 r8
	$(BIN)/python -m benchmarks l2 --scale 17

ci-deps: .venv/dev  ## what only CI's tests need: kcat, a JDK with Maven, Go; jars and modules
	scripts/install-test-tools

dist: .venv/dev  ## wheel, sdist and the list of components (CycloneDX) into dist/
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/python scripts/make_sbom.py > dist/headgate.cdx.json

lock:  ## new versions of everything; needs pip-tools
	$(LOCK) --upgrade --extra=dev -o requirements-dev.lock pyproject.toml
	$(LOCK) --upgrade -c requirements-dev.lock -o requirements.lock pyproject.toml
	for tool in awscli moto; do \
	  $(LOCK) --upgrade -o tests/interop/sqs/tools/$$tool.lock tests/interop/sqs/tools/$$tool.in; \
	done
	sed -i '1i # Versions and hashes; made by `make lock` from pyproject.toml.' requirements*.lock

clean:
	rm -rf .venv .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist

.venv/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "Headgate needs Python 3.11 or newer; name one: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv .venv
	@touch $@

.venv/run: requirements.lock pyproject.toml .venv/python
	$(PIP) --require-hashes -r requirements.lock
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

.venv/dev: requirements-dev.lock .venv/run
	$(PIP) --require-hashes -r requirements-dev.lock
	@touch $@
