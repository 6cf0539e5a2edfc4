"""Levels that act on CUDA devices only."""

from __future__ import annotations

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

COMPARED = ("losses", "first_gradient", "probe_logits", "parameters")


def relative(arm: torch.Tensor, reference: torch.Tensor) -> float:
    return ((arm.double() - reference.double()).norm() / reference.double().norm()).item()


def deviations(arm, reference) -> dict[str, float]:
    return {name: relative(arm.tensors[name], reference.tensors[name]) for name in COMPARED}


@pytest.fixture(autouse=True)
def deterministic():
    """Convolutions on CUDA may add in any order unless told otherwise."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(
    ("levels", "counter"),
    [
        ({"pin_memory": "on"}, "pinned_batches"),
        ({"pin_memory": "on", "num_workers": 2}, "pinned_batches"),
        ({"pin_memory": "on", "non_blocking": "on"}, "unwaited_copies"),
        ({"prefetch": "stream"}, "prefetched_batches"),
        (
            {"prefetch": "stream", "pin_memory": "on", "non_blocking": "on", "num_workers": 2},
            "prefetched_batches",
        ),
        ({"tf32": "on"}, "tf32_iterations"),
    ],
)
def test_a_level_moves_its_witness(start, run, levels, counter) -> None:
    base, arm = start(device="cuda"), start(device="cuda", **levels)
    run(base, 5)
    base_count = base.counters()[counter]
    base.close()
    run(arm, 5)
    # tf32 is a setting of the process, and the arm that was started last has set it.
    assert arm.counters()[counter] >= 5
    assert counter == "tf32_iterations" or base_count == 0


@pytest.mark.parametrize(
    "levels",
    [
        {"pin_memory": "on"},
        {"pin_memory": "on", "non_blocking": "on"},
        {"prefetch": "stream"},
        {"prefetch": "stream", "pin_memory": "on", "non_blocking": "on", "num_workers": 2},
        {"checkpoint": "async"},
    ],
)
def test_how_batches_travel_changes_no_bit(evidence_of, levels) -> None:
    reference, arm = evidence_of(24, device="cuda"), evidence_of(24, device="cuda", **levels)
    assert deviations(arm, reference) == dict.fromkeys(COMPARED, 0.0)
    assert arm.numbers["checkpoint_error"] == 0.0


@pytest.mark.parametrize(
    "levels",
    [
        {"optimizer": "fused"},
        {"optimizer": "foreach"},
        {"micro_batch": 48},
        {"grad_checkpointing": "on"},
        {"zero_grad": "none"},
    ],
)
def test_exact_levels_compute_the_same_on_cuda(evidence_of, levels) -> None:
    # float32 with sums in another order, as on CPU.
    assert (
        max(deviations(evidence_of(24, device="cuda", **levels), evidence_of(24, device="cuda")).values())
        <= 1e-5
    )


@pytest.mark.parametrize("levels", [{"amp": "bf16"}, {"amp": "fp16"}, {"tf32": "on"}])
def test_rounding_levels_stay_within_their_bounds_on_cuda(evidence_of, levels) -> None:
    from perfsweep.workloads.digits.declaration import TOGGLES

    ((name, value),) = levels.items()
    bounds = next(toggle for toggle in TOGGLES if toggle.name == name).level(value).bounds
    reference = evidence_of(24, device="cuda")
    found = deviations(evidence_of(24, device="cuda", **levels), reference)
    assert all(found[check] <= bound for check, bound in bounds.items()), found


def test_the_device_trains_as_the_host_does(evidence_of) -> None:
    # The same initial values and batches; kernels differ, so sums are ordered differently.
    assert max(deviations(evidence_of(5, device="cuda"), evidence_of(5)).values()) <= 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("level", ["default", "reduce_overhead"])
def test_compiled_training_computes_the_same_on_cuda(evidence_of, level) -> None:
    together = {"zero_grad": "none"}
    arm = evidence_of(24, device="cuda", compile=level, **together)
    assert max(deviations(arm, evidence_of(24, device="cuda", **together)).values()) <= 1e-5


def test_logging_a_loss_waits_for_no_later_work(start, run) -> None:
    workload = start(device="cuda")
    run(workload, 3)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        losses = workload._losses
        losses.push(99, torch.ones((), device="cuda"))
        assert losses.take() == (99, 1.0)
    finally:
        torch.cuda.set_sync_debug_mode("default")
