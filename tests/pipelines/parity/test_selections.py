"""Which tensors a check is about, and which of their entries it excuses."""

from __future__ import annotations

import numpy as np
import pytest
from evidences import tensor_evidence

from perfsweep.pipelines.parity.deviations import judge
from perfsweep.pipelines.parity.results import ParityVerdict
from perfsweep.workloads.api import Check, Evidence, Parity

EXACT, TOLERANCE = Parity.EXACT, Parity.TOLERANCE
IDENTICAL, WITHIN = ParityVerdict.IDENTICAL, ParityVerdict.WITHIN_TOLERANCE
DIFFERENT, UNCHECKED = ParityVerdict.DIFFERENT, ParityVerdict.UNCHECKED


def test_a_pattern_checks_every_tensor_it_matches() -> None:
    reference = Evidence({"grad/a": np.ones(3), "grad/b": np.ones(3), "other": np.ones(3)})
    arm = Evidence({"grad/a": np.ones(3), "grad/b": np.full(3, 1.5), "other": np.ones(3)})
    result = judge(reference, arm, [Check("grad/*")], EXACT, {})
    assert [(d.check, d.ok) for d in result.deviations] == [("grad/a", True), ("grad/b", False)]


def test_a_plain_name_matches_itself_only() -> None:
    reference, arm = (
        tensor_evidence(loss=[1.0], loss_scale=[1.0]),
        tensor_evidence(loss=[1.0], loss_scale=[2.0]),
    )
    assert [d.check for d in judge(reference, arm, [Check("loss")], EXACT, {}).deviations] == ["loss"]


def test_a_tensor_that_only_one_arm_has_fails_a_pattern() -> None:
    result = judge(
        Evidence({"grad/a": np.ones(3), "grad/b": np.ones(3)}),
        Evidence({"grad/a": np.ones(3)}),
        [Check("grad/*")],
        EXACT,
        {},
    )
    assert result.verdict is DIFFERENT and "grad/b: missing in the arm" in result.reason


def test_excused_entries_do_not_count_and_their_number_is_reported() -> None:
    reference = tensor_evidence(rank=[1, 2, 3, 4], unsure=[False, True, False, False])
    arm = tensor_evidence(rank=[1, 9, 3, 9], unsure=[False, False, False, True])
    result = judge(reference, arm, [Check("rank", excused="unsure")], EXACT, {})
    assert result.verdict is WITHIN  # an entry unsure on either side is excused
    assert result.deviations[0].excused == 2


def test_an_entry_outside_the_mask_is_not_excused() -> None:
    reference = tensor_evidence(rank=[1, 2, 3], unsure=[False, True, False])
    arm = tensor_evidence(rank=[9, 2, 3], unsure=[False, True, False])
    assert judge(reference, arm, [Check("rank", excused="unsure")], EXACT, {}).verdict is DIFFERENT


def test_a_mask_over_rows_excuses_whole_rows() -> None:
    reference = tensor_evidence(x=np.ones((3, 2)), unsure=[False, True, False])
    arm = tensor_evidence(x=[[1.0, 1.0], [7.0, 7.0], [1.0, 1.0]], unsure=[False, True, False])
    result = judge(reference, arm, [Check("x", excused="unsure")], EXACT, {})
    assert (result.verdict, result.deviations[0].excused) == (WITHIN, 2)


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        ({"unsure": [True, True, True]}, "all 3 entries are excused"),
        ({"unsure": [True, False]}, "does not fit"),
        ({"unsure": [1, 0, 0]}, "does not fit"),
        ({}, "neither arm has the mask unsure"),
    ],
)
def test_an_excuse_that_cannot_be_meant_is_different(mask: dict, words: str) -> None:
    evidence = tensor_evidence(x=[1.0, 2.0, 3.0], **mask)
    result = judge(evidence, evidence, [Check("x", excused="unsure")], EXACT, {})
    assert result.verdict is DIFFERENT and words in result.reason
