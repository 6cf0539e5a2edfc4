"""`perfsweep check`: what a workload's author would want to know before a sweep does."""

ANSWER = "look.json"
"""File in which the process of a look writes what it saw; named here, as that process imports torch."""
