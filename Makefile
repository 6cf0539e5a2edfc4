# make sweep      measure the demo, or WORKLOAD=.. SWEEP=.. ARGS="measure.rounds=6 ..."
# make test       everything that is quick
PYTHON   ?= python3
VENV     ?= .venv
WORKLOAD ?= digits
SWEEP    ?= demo
CLUSTER  ?= local
ARGS     ?=

BIN   := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup sweep run compare test test-slow lint

help:
	@echo "make setup      create $(VENV) with the tested versions"
	@echo "make sweep      measure a named sweep: WORKLOAD=$(WORKLOAD) SWEEP=$(SWEEP) CLUSTER=$(CLUSTER) ARGS="
	@echo "make run        one trial here and now: WORKLOAD=$(WORKLOAD) ARGS=\"toggles.amp=bf16\""
	@echo "make compare    the table and report of what is measured: WORKLOAD=$(WORKLOAD) SWEEP=$(SWEEP)"
	@echo "make test       the quick tests"
	@echo "make test-slow  the long tests"
	@echo "make lint       ruff and pyright"

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "perfsweep needs Python 3.11 or newer: make PYTHON=python3.11 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[test]"
	@touch $@

sweep: $(READY)
	$(BIN)/perfsweep sweep workload=$(WORKLOAD) sweep=$(SWEEP) cluster=$(CLUSTER) $(ARGS)

run: $(READY)
	$(BIN)/perfsweep run workload=$(WORKLOAD) $(ARGS)

compare: $(READY)
	$(BIN)/perfsweep compare runs/$(WORKLOAD)-$(SWEEP)

test: $(READY)
	$(BIN)/python -m pytest -m "not slow" -n 2 --dist loadfile $(ARGS)

test-slow: $(READY)
	$(BIN)/python -m pytest -m slow -n 2 --dist loadfile $(ARGS)

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

$(VENV)/.lint: $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	@touch $@
