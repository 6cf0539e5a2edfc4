"""How answers of an arm are judged: choices that were close may differ, and no others."""

from __future__ import annotations

import pytest
import torch

from perfsweep.pipelines.parity.deviations import judge
from perfsweep.pipelines.parity.results import ParityVerdict
from perfsweep.workloads.api import Evidence, Parity
from perfsweep.workloads.latentwire.declaration import CHECKS


def evidence(ids: list[list[int]], close: list[list[bool]]) -> Evidence:
    tensors = {check.name: torch.ones(3) for check in CHECKS}
    return Evidence({**tensors, "greedy_ids": torch.tensor(ids), "greedy_close": torch.tensor(close)}, {})


@pytest.mark.parametrize(
    ("arm", "close", "verdict"),
    [
        ([[1, 2], [3, 4]], [[False, False], [False, False]], ParityVerdict.IDENTICAL),
        ([[1, 5], [3, 4]], [[False, True], [False, False]], ParityVerdict.WITHIN_TOLERANCE),
        ([[1, 5], [3, 4]], [[False, False], [False, True]], ParityVerdict.DIFFERENT),
    ],
)
def test_another_choice_is_excused_where_the_runner_up_was_close(arm, close, verdict) -> None:
    reference = evidence([[1, 2], [3, 4]], close)
    found = judge(reference, evidence(arm, close), CHECKS, Parity.TOLERANCE, {})
    assert (found.verdict is ParityVerdict.DIFFERENT) == (verdict is ParityVerdict.DIFFERENT), found
