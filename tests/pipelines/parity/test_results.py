"""Pieces of evidence by name, their digests, and deviations in units of their bounds and in words."""

from __future__ import annotations

import math

import numpy as np
import pytest

from perfsweep.pipelines.parity.results import Deviation, digest, entry_of, names_of
from perfsweep.workloads.api import Evidence

EVIDENCE = Evidence({"grad/b": np.ones(2), "grad/a": np.ones(2), "x[0]": np.ones(1)}, {"loss": 2.0, "n": 3})


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("grad/*", ["grad/b", "grad/a"]),  # in the workload's order
        ("*", ["grad/b", "grad/a", "x[0]", "loss", "n"]),
        ("x[0]", ["x[0]"]),  # a name as it is written, though brackets are a pattern elsewhere
        ("grad/?", []),  # only a star makes a pattern
        ("GRAD/*", []),
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


@pytest.mark.parametrize(
    ("value", "bound", "ratio"),
    [(0.5, 0.25, 2.0), (0.0, 0.25, 0.0), (0.0, 0.0, 0.0), (1e-9, 0.0, math.inf), (math.inf, 0.5, math.inf)],
)
def test_a_deviation_is_told_in_units_of_its_bound(value: float, bound: float, ratio: float) -> None:
    assert Deviation("loss", value, bound, "", True).ratio == ratio


@pytest.mark.parametrize(
    ("deviation", "words"),
    [
        (Deviation("loss", 0.12345, 0.01, "", False), "loss: 0.123 against 0.01"),
        (Deviation("loss", 2e-7, 1e-5, "worst at [3]", True), "loss: 2e-07 against 1e-05 (worst at [3])"),
        (
            Deviation("loss", 0.5, 1.0, "worst at [3]", True, 2),
            "loss: 0.5 against 1 (worst at [3]), 2 entries excused",
        ),
        (Deviation("loss", math.inf, 0.0, "missing in the arm", False), "loss: missing in the arm"),
    ],
)
def test_a_deviation_in_words_has_value_bound_and_place_or_why_there_is_none(
    deviation: Deviation, words: str
) -> None:
    assert str(deviation) == words
