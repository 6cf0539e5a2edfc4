"""Sweeps that are planned or measured: what is there of them, and who hears of it meanwhile."""
