# make sweep      measure the demos, or WORKLOAD=.. SWEEP=.. ARGS="measure.rounds=6 ..."
# make test       everything that is quick
PYTHON   ?= python3
VENV     ?= .venv
WORKLOAD ?=
SWEEP    ?= demo
CLUSTER  ?= local
ARGS     ?=

DEMOS := digits probe1d
BIN   := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup sweep run compare test test-slow lint

help:
	@echo "make setup      create $(VENV) with the tested versions"
	@echo "make sweep      measure a named sweep of $(DEMOS), or of one: WORKLOAD=digits SWEEP=$(SWEEP) CLUSTER=$(CLUSTER) ARGS="
	@echo "make run        one trial here and now: WORKLOAD=digits ARGS=\"toggles.amp=bf16\""
	@echo "make compare    tables and reports of what is measured: WORKLOAD=digits SWEEP=$(SWEEP)"
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
	@status=0; for workload in $(or $(WORKLOAD),$(DEMOS)); do \
	    $(BIN)/perfsweep sweep workload=$$workload sweep=$(SWEEP) cluster=$(CLUSTER) $(ARGS) || status=$$?; \
	    if [ $$status -ge 2 ]; then break; fi; \
	done; exit $$status

run: $(READY)
	$(BIN)/perfsweep run workload=$(or $(WORKLOAD),digits) $(ARGS)

compare: $(READY)
	@status=0; for workload in $(or $(WORKLOAD),$(DEMOS)); do \
	    $(BIN)/perfsweep compare runs/$$workload-$(SWEEP) || status=$$?; \
	done; exit $$status

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
