"""What is done with workloads: plan, launch, pack, trial, collect, compare, report, publish."""
