# A fragment for your Makefile: `include perfsweep.mk`, then `make sweep`. By itself: make -f perfsweep.mk sweep
WORKLOAD ?= my_workload:MyWorkload
CLUSTER  ?= local
ARGS     ?=

.PHONY: check sweep plan

check:
	perfsweep check $(WORKLOAD)

plan:
	perfsweep sweep workload=$(WORKLOAD) cluster=$(CLUSTER) dry_run=true $(ARGS)

sweep:
	perfsweep sweep workload=$(WORKLOAD) cluster=$(CLUSTER) $(ARGS)
