"""How answers of an arm are judged, and which levels go together."""

from __future__ import annotations

import pytest
import torch
from declared import faults
from tables.latentwire import FORBIDDEN

from perfsweep.pipelines.parity.deviations import judge
from perfsweep.pipelines.parity.results import ParityVerdict
from perfsweep.pipelines.plan.arms import Space
from perfsweep.workloads.api import Device, Evidence, Parity
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.latentwire import variants
from perfsweep.workloads.latentwire.config import LatentWireConfig
from perfsweep.workloads.latentwire.declaration import CHECKS
from perfsweep.workloads.latentwire.variants import TOGGLES, encoding, fused_attention, loading

GPU = Device("cuda", 1, "H200", 140 * 2**30, (9, 0), compiler=True)


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


@pytest.mark.parametrize(("levels", "word"), FORBIDDEN, ids=str)
def test_a_level_without_what_it_needs_or_with_what_it_cannot_have_is_refused(levels, word: str) -> None:
    with pytest.raises(ConfigError, match=rf"\b{word}\b"):
        Space(TOGGLES, LatentWireConfig(), GPU).legal(levels)


def test_every_level_has_a_witness_and_bounds_and_no_declaration_imports_torch() -> None:
    assert faults(TOGGLES, variants) == []
    assert {one.toggle.name for one in loading.VARIANTS} <= {toggle.name for toggle in TOGGLES}


def test_levels_are_exact_unless_a_configuration_rounds_or_draws_otherwise() -> None:
    sdpa, native = (
        fused_attention.VARIANTS[0].toggle.level("sdpa"),
        encoding.VARIANTS[1].toggle.level("native"),
    )
    assert sdpa.loosened is not None and native.loosened is not None
    for half in ({"lm_dtype": "bf16"}, {"amp": "fp16"}):
        assert sdpa.loosened(None, {"lm_dtype": "fp32", "amp": "off", **half}) is Parity.TOLERANCE
    assert sdpa.loosened(None, {"lm_dtype": "fp32", "amp": "off"}) is None
    assert native.loosened(LatentWireConfig(dropout=0.1), {}) is Parity.STOCHASTIC
    assert native.loosened(LatentWireConfig(dropout=0.0), {}) is None
