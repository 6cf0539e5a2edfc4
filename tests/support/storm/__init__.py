"""Faults with names, alone or many at once, against real sweeps, and what must hold of the files afterwards.

``make storm``, ``make faults`` and ``make soak`` run ``python -m storm``. What is checked (`invariants`,
`published`, `traces`) imports nothing of ours: it reads files and processes with the standard library, numpy
and polars.
"""
