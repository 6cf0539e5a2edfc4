"""`perfsweep check`: what a workload's author would want to know before a sweep does."""

from perfsweep.pipelines.store.options import MeasureConfig

ANSWER = "look.json"
"""File in which the process of a look writes what it saw; named here, as that process imports torch."""

COMPARED = MeasureConfig().evidence_iterations
"""Iterations whose results a sweep compares: a script that ends before them is not measured."""
