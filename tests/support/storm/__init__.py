"""Faults with names, alone or many at once, against real sweeps, and what must hold of the files afterwards.

`faults` and `cases` are the two tables; `make storm`, `make faults` and `make soak` run ``python -m storm``.
What is checked (`invariants`) imports nothing of ours.
"""
