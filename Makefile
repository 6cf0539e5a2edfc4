# make sweep      measure the demos, or WORKLOAD=.. SWEEP=.. ARGS="measure.rounds=6 ..."
# make test       everything that is quick
PYTHON   ?= python3
VENV     ?= .venv
WORKLOAD ?=
SWEEP    ?= demo
CLUSTER  ?= auto
ARGS     ?=

# Several clusters live side by side: make slurm-up PERFSWEEP_SLURM_ROOT=/tmp/second SLURM_PORT=18817
SLURM_PORT ?= 17817
SLURM_ARGS ?=
DEV_SLURM  = PYTHONPATH=tests/support timeout 120 $(BIN)/python -m dev_slurm
SLURM_PACKAGES := slurm-wlm munge
SLURM_ACCOUNTING := slurmdbd mariadb-server slurm-wlm-mysql-plugin
HAS_SLURM := PATH="$$PATH:/usr/sbin:/sbin"; command -v slurmctld && command -v slurmd && command -v munged

# A storm: SEED= replays one, SLURM=1 adds the development Slurm; each fault of the Slurm lists alone: TIMES=3, CASES="F12 D3"
SLURM    ?=
TIMES    ?= 1
CASES    ?=
TRIALS   ?= 5000
STORM     = PYTHONPATH=$(CURDIR)/tests/support $(BIN)/python -m storm

DEMOS := digits probe1d
BIN   := $(VENV)/bin
READY := $(VENV)/.ready
SITE   := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict  # --quiet would pass what --strict refuses
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile

# The tests start hundreds of processes, and each would compile our modules for itself.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup sweep tune run profile compare picture gpu-check test test-workloads test-slow storm faults soak peers fuzz mutants lint docs slurm-install slurm-up slurm-down slurm-status slurm-shell slurm-if-root browser-if-root

help:
	@echo "make setup      create $(VENV) with the tested versions"
	@echo "make sweep      measure a named sweep of $(DEMOS), or of one: WORKLOAD=digits SWEEP=$(SWEEP) CLUSTER=$(CLUSTER) ARGS="
	@echo "make tune       search the fastest arm of a workload and verify it: WORKLOAD=digits CLUSTER=$(CLUSTER) ARGS=\"tune.memory_gib=4\""
	@echo "make run        one trial here and now: WORKLOAD=digits ARGS=\"toggles.amp=bf16\""
	@echo "make profile    where the time of one arm goes: WORKLOAD=digits ARGS=\"toggles.amp=bf16 profile.tool=torch\""
	@echo "make compare    tables and reports of what is measured: WORKLOAD=digits SWEEP=$(SWEEP)"
	@echo "make picture    docs/digits-demo.png from a measured sweep's report, by Chromium: WORKLOAD=digits SWEEP=$(SWEEP)"
	@echo "make gpu-check  ten-minute check that measurements on a GPU are correct; CLUSTER=$(CLUSTER) submits it there"
	@echo "make test       the quick tests, within one budget of processor time; it prints what was spent"
	@echo "make test-workloads  every level of every workload: parity, counters, compiling"
	@echo "make test-slow  the long tests"
	@echo "make storm      sweeps under many faults at once, for MINUTES=20: SEED= SLURM=1"
	@echo "make faults     each fault of the two Slurm lists alone, as a table: TIMES=3 CASES=\"F12 D3\""
	@echo "make soak       $(TRIALS) short trials in one sweep: does anything grow?"
	@echo "make peers      the same plants by perfsweep, torch.utils.benchmark, pyperf, hyperfine and pytest-benchmark: TIMES=10"
	@echo "make fuzz       damages every kind of file that is read, at random: MINUTES=10 for each, SEED=1"
	@echo "make mutants    plants small mistakes and lists what the nearest quick tests miss: COUNT=300 SEED=1"
	@echo "make slurm-up   start a real Slurm on this host; then make sweep CLUSTER=dev; make slurm-down stops it"
	@echo "make slurm-install   as root: apt-get install $(SLURM_PACKAGES) and what accounting needs"
	@echo "make docs       the pages as a site, in build/site; fails where a link leads nowhere"
	@echo "make lint       ruff, pyright, layers (import-linter), repeated code (pylint), plain words, the pages (mkdocs)"

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || { echo "perfsweep needs Python 3.11 to 3.13: make PYTHON=python3.11 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[test]"
	@touch $@

sweep: $(READY)
	@status=0; for workload in $(or $(WORKLOAD),$(DEMOS)); do \
	    $(BIN)/perfsweep sweep workload=$$workload sweep=$(SWEEP) cluster=$(CLUSTER) $(ARGS) || status=$$?; \
	    if [ $$status -ge 2 ]; then break; fi; \
	done; exit $$status

tune: $(READY)
	$(BIN)/perfsweep tune workload=$(or $(WORKLOAD),digits) cluster=$(CLUSTER) $(ARGS)

run: $(READY)
	$(BIN)/perfsweep run workload=$(or $(WORKLOAD),digits) $(ARGS)

profile: $(READY)
	$(BIN)/perfsweep profile workload=$(or $(WORKLOAD),digits) $(ARGS)

compare: $(READY)
	@status=0; for workload in $(or $(WORKLOAD),$(DEMOS)); do \
	    $(BIN)/perfsweep compare runs/$$workload-$(SWEEP) || status=$$?; \
	done; exit $$status

picture: $(READY)
	chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1100,700 \
	    --screenshot=docs/$(or $(WORKLOAD),digits)-$(SWEEP).png file://$(CURDIR)/runs/$(or $(WORKLOAD),digits)-$(SWEEP)/report.html

gpu-check: $(READY)
	$(BIN)/perfsweep doctor gpu=true cluster=$(CLUSTER) $(ARGS)

test: $(READY) slurm-if-root browser-if-root
	$(PYTEST) -m "not slow and not workloads" $(ARGS)

test-workloads: $(READY)
	$(PYTEST) -m "workloads and not slow" $(ARGS)

test-slow: $(READY) slurm-if-root browser-if-root
	$(PYTEST) -n 3 -m slow $(ARGS)  # many of them wait for Slurm or a browser

storm: $(READY)
	@$(STORM) storm --minutes $(or $(MINUTES),20) $(if $(SEED),--seed $(SEED)) $(if $(SLURM),--slurm --port $(SLURM_PORT)) $(ARGS)

faults: $(READY)
	@$(STORM) faults $(CASES) --times $(TIMES) --port $(SLURM_PORT) $(ARGS)

soak: $(READY)
	@$(STORM) soak --trials $(TRIALS) $(ARGS)
COUNT ?= 300

# pytest-benchmark would be a plugin of all tests, were it in the environment.
$(VENV)/peers: $(READY)
	$(BIN)/python -m pip install -q --target $@ -c constraints.txt pyperf pytest-benchmark

peers: $(VENV)/peers
	@command -v hyperfine > /dev/null || test "$$(id -u)" != 0 || apt-get install -qq -y --no-install-recommends hyperfine > /dev/null || echo "without hyperfine"
	@PYTHONPATH=tests/support:$(VENV)/peers $(BIN)/python -m peers --times $(TIMES) $(ARGS)

fuzz: $(READY)
	PYTHONPATH=tests/support $(BIN)/python -m fuzzing --minutes $(or $(MINUTES),10) --seed $(or $(SEED),1) $(ARGS)

mutants: $(VENV)/.lint
	PYTHONPATH=tests/support $(BIN)/python -m mutants --count $(COUNT) --seed $(or $(SEED),1) $(ARGS)

slurm-install:
	@test "$$(id -u)" = 0 || { echo "slurm-install needs root: sudo make slurm-install"; exit 1; }
	timeout 300 apt-get update -qq
	DEBIAN_FRONTEND=noninteractive timeout 600 apt-get install -qq -y --no-install-recommends $(SLURM_PACKAGES) $(SLURM_ACCOUNTING) > /dev/null

# Where it cannot be installed the Slurm tests skip, and the last line of the tests says so.
slurm-if-root:
	@{ $(HAS_SLURM); } > /dev/null || test "$$(id -u)" != 0 || ! command -v apt-get > /dev/null || $(MAKE) --no-print-directory slurm-install \
	    || echo "Slurm could not be installed: its tests will skip"

# The report is looked at in a real browser; only tests need one.
browser-if-root:
	@command -v chromium > /dev/null || test "$$(id -u)" != 0 || ! command -v apt-get > /dev/null \
	    || { timeout 300 apt-get update -qq && DEBIAN_FRONTEND=noninteractive timeout 600 apt-get install -qq -y --no-install-recommends chromium > /dev/null; } \
	    || echo "Chromium could not be installed: the report's tests in a browser will skip"

slurm-up: $(READY)
	@$(DEV_SLURM) up --port $(SLURM_PORT) $(SLURM_ARGS)

slurm-down: $(READY)
	@$(DEV_SLURM) down

slurm-status: $(READY)
	@$(DEV_SLURM) status

slurm-shell: $(READY)
	@PYTHONPATH=tests/support $(BIN)/python -m dev_slurm shell

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo
	PYTHONPATH=tests/support $(BIN)/python -m plain_words
	$(SITE)
	$(BIN)/pyright & types=$$!; $(BIN)/pylint --score=n src pipelines workloads slurm conf; twice=$$?; wait $$types && exit $$twice

docs: $(VENV)/.lint
	$(SITE)

$(VENV)/.lint: $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	@touch $@
