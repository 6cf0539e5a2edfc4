"""Estimates, intervals and verdicts: pure, without files and without torch."""
