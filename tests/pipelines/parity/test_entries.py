"""Pieces of evidence by name, and their digests."""

from __future__ import annotations

import numpy as np
import pytest

from perfsweep.pipelines.parity.results import digest, digests_of, entry_of, names_of
from perfsweep.workloads.api import Evidence

EVIDENCE = Evidence({"grad/b": np.ones(2), "grad/a": np.ones(2), "x[0]": np.ones(1)}, {"loss": 2.0, "n": 3})


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("loss", ["loss"]),
        ("grad/*", ["grad/b", "grad/a"]),  # in the workload's order
        ("*", ["grad/b", "grad/a", "x[0]", "loss", "n"]),
        ("x[0]", ["x[0]"]),  # a name as it stands, though brackets are a pattern elsewhere
        ("grad/?", []),  # only a star makes a pattern
        ("GRAD/*", []),
        ("none", []),
    ],
)
def test_a_check_speaks_of_a_name_or_of_all_that_a_star_stands_for(pattern: str, names: list[str]) -> None:
    assert names_of(pattern, EVIDENCE) == names


def test_numbers_are_read_as_arrays_without_dimensions_in_double_precision() -> None:
    number = entry_of(EVIDENCE, "n")
    assert number is not None
    assert (number.shape, number.dtype, float(number)) == ((), np.float64, 3.0)
    assert entry_of(EVIDENCE, "grad/a") is EVIDENCE.tensors["grad/a"]
    assert entry_of(EVIDENCE, "none") is None


def test_digests_tell_values_shapes_and_dtypes_apart_and_not_how_they_lie_in_memory() -> None:
    array = np.arange(6.0).reshape(2, 3)
    others = [array.reshape(3, 2), array.astype(np.float32), array + 1, np.zeros((2, 3))]
    assert len({digest(array), *map(digest, others)}) == 5
    assert digest(np.asfortranarray(array)) == digest(array)


def test_every_piece_of_evidence_has_a_digest() -> None:
    found = digests_of(EVIDENCE)
    assert list(found) == ["grad/b", "grad/a", "x[0]", "loss", "n"]
    assert found["loss"] == digest(np.asarray(2.0))
