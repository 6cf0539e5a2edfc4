"""Sweeps that are planned or measured: their results so far, and who is told of their progress."""
