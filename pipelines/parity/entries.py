"""Pieces of evidence by their names: tensors as they are, numbers as arrays without dimensions."""

from __future__ import annotations

import fnmatch
import hashlib

import numpy as np

from perfsweep.workloads.api import Evidence


def names_of(pattern: str, evidence: Evidence) -> list[str]:
    """Evidence that a check speaks of, in the workload's order; ``grad/*`` means every gradient."""
    names = (*evidence.tensors, *evidence.numbers)
    return [
        name for name in names if name == pattern or ("*" in pattern and fnmatch.fnmatchcase(name, pattern))
    ]


def entry_of(evidence: Evidence, name: str) -> np.ndarray | None:
    """Read a piece of evidence; None where there is none of the name."""
    if name in evidence.tensors:
        return np.asarray(evidence.tensors[name])
    return np.asarray(evidence.numbers[name], dtype=np.float64) if name in evidence.numbers else None


def digest(array: np.ndarray) -> str:
    """SHA-256 over dtype, shape and bytes."""
    text = f"{array.dtype.str}{array.shape}".encode()
    return hashlib.sha256(text + np.ascontiguousarray(array).tobytes()).hexdigest()


def digests_of(evidence: Evidence) -> dict[str, str]:
    """Digest each piece of evidence."""
    entries = {name: entry_of(evidence, name) for name in (*evidence.tensors, *evidence.numbers)}
    return {name: digest(entry) for name, entry in entries.items() if entry is not None}
