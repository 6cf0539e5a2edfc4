"""`perfsweep check`: what a workload's author would want to know before a sweep does."""
