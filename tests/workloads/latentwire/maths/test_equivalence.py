"""Merged, cached and batched paths agree with the naive path, term by term and in gradients."""

from __future__ import annotations

import pytest
import torch

from perfsweep.pipelines.plan.arms import Space
from perfsweep.workloads.api import Device, Parity
from perfsweep.workloads.latentwire.config import LatentWireConfig
from perfsweep.workloads.latentwire.variants import FAST_EXACT
from perfsweep.workloads.latentwire.workload import LatentWire

pytestmark = pytest.mark.workloads

HERE = Device(compiler=True, cores=2)
SPACE = Space(LatentWire.toggles, LatentWireConfig(), HERE)
FAST = {**FAST_EXACT, "encoder_attn": "sdpa", "products": "library", "effective_batch": 4, "micro_batch": 4}
EXACT = [
    (toggle.name, level.value)
    for toggle in LatentWire.toggles
    for level in toggle.levels[1:]
    if level.parity is Parity.EXACT
    and not level.unsupported(HERE)
    and toggle.name not in ("micro_batch", "effective_batch", "num_workers", "parallel", "compile")
]
ROUNDED = [("lm_dtype", "bf16"), ("amp", "bf16")]


@pytest.mark.parametrize(("name", "value"), EXACT)
def test_an_exact_level_changes_nothing_in_double_precision(
    evidence_of, reference_of, deviations, name, value
) -> None:
    config = {"models": 2 if name == "model_backward" else 1}
    arm, reference = evidence_of({name: value}, **config), reference_of(**config)
    assert max(deviations(arm, reference).values()) <= 1e-12
    assert torch.equal(arm.tensors["greedy_ids"], reference.tensors["greedy_ids"])


@pytest.mark.parametrize(
    "levels", [{"answer_trim": "batch_max"}, {"encoder_trim": "batch_max"}, {"encoder_attn": "native"}]
)
def test_what_is_trimmed_was_padding(evidence_of, deviations, short, levels) -> None:
    assert (
        max(
            deviations(
                evidence_of({**levels, "micro_batch": 2}, data=short), evidence_of(data=short)
            ).values()
        )
        <= 1e-12
    )


@pytest.mark.parametrize("micro", [1, 3])
def test_pieces_with_global_counts_are_one_batch(evidence_of, reference_of, deviations, micro) -> None:
    assert max(deviations(evidence_of({"micro_batch": micro}), reference_of()).values()) <= 1e-12


@pytest.mark.parametrize(
    "levels", [{"encoder_attn": "native"}, {"micro_batch": 2, "teacher": "slice_header"}], ids=str
)
def test_all_exact_levels_together_train_alike(evidence_of, reference_of, deviations, levels) -> None:
    """Losses, not weights: where a gradient is zero Adam turns rounding noise into whole steps."""
    found = deviations(evidence_of({**FAST, **levels}, steps=10), reference_of(steps=10))
    assert max(found["terms"], found["gradient"]) <= 1e-12
    assert found["losses"] <= 1e-8


def test_all_exact_levels_together_stay_within_rounding_in_single_precision(
    evidence_of, reference_of, deviations
) -> None:
    found = deviations(evidence_of(FAST, dtype="float32"), reference_of(dtype="float32"))
    assert max(found["terms"], found["gradient"]) <= 1e-5
    assert found["losses"] <= 1e-3


@pytest.mark.parametrize(("name", "value"), ROUNDED)
def test_sixteen_bits_stay_within_their_bounds(evidence_of, reference_of, deviations, name, value) -> None:
    level = SPACE.toggle(name).level(value)
    arm, reference = evidence_of({name: value}, dtype="float32"), reference_of(dtype="float32")
    found = deviations(arm, reference)
    g, r = (one.tensors["gradient"].double() for one in (arm, reference))
    found["gradient_direction"] = 1 - (torch.dot(g, r) / g.norm() / r.norm()).item()
    assert all(found[check] <= bound for check, bound in level.bounds.items() if check in found), found
    assert found["gradient"] > 1e-5  # it did round


def test_a_wrong_shift_is_told_apart_from_rounding(evidence_of, deviations, monkeypatch) -> None:
    """The planted mutant reads one position too early in the merged pass."""
    from perfsweep.workloads.latentwire.variants.student_passes import Merged

    ask = Merged.ask

    def early(self, model, prefix, answer):
        return ask(self, model, prefix, torch.roll(answer, 1, dims=1))

    reference = evidence_of()
    monkeypatch.setattr(Merged, "ask", early)
    assert deviations(evidence_of({"passes": "merged"}), reference)["terms"] > 1e-4


def test_running_out_of_memory_loses_nothing(evidence_of, deviations, start, run) -> None:
    torch.manual_seed(3)
    broken = evidence_of({"oom": "backoff"}, oom_above=1, dropout=0.1)
    torch.manual_seed(3)
    whole = evidence_of({"oom": "backoff", "micro_batch": 1}, dropout=0.1)
    assert max(deviations(broken, whole).values()) <= 1e-12


def test_dying_is_an_outcome_of_its_own(start, run) -> None:
    with pytest.raises(torch.OutOfMemoryError):
        run(start(oom_above=2), 1)


def test_memory_too_small_for_one_row_is_said_in_a_sentence(start, run) -> None:
    from perfsweep.workloads.errors import ConfigError

    with pytest.raises(ConfigError, match="single row"):
        run(start({"oom": "backoff"}, oom_above=0), 1)


def test_recomputed_activations_see_the_same_dropout(evidence_of, deviations) -> None:
    torch.manual_seed(7)
    kept = evidence_of(dropout=0.2)
    torch.manual_seed(7)
    recomputed = evidence_of({"grad_checkpointing": "on"}, dropout=0.2)
    assert max(deviations(recomputed, kept).values()) <= 1e-12
