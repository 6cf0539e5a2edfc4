"""Workloads small enough to sweep in seconds, and able to fail in every way a real one can."""
