"""Levels that act on CUDA devices only."""

from __future__ import annotations

import pytest
import torch

from perfsweep.workloads.api import Device

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

GPU = Device(type="cuda", count=1, name="", capability=(9, 0), cores=2, compiler=True)
QUIET = {"log_every": 1000, "eval_every": 1000, "save_every": 1000}
SYNCHRONOUS = {"metrics": "deferred", "mask_checks": "off"}


def losses_of(workload, iterations: int) -> list[float]:
    from perfsweep.workloads.api import NullClock

    found = []
    for _ in range(iterations):
        workload.step(NullClock())
        found.append(workload.arm.total.item())
    return found


@pytest.mark.parametrize(
    ("levels", "counter"),
    [
        ({"pin_memory": "on"}, "pinned_batches"),
        ({"non_blocking": "on"}, "unwaited_copies"),
        ({"prefetch": "stream"}, "prefetched_batches"),
        ({"tf32": "on"}, "tf32_products"),
        ({"profiler": "events"}, "recorded_events"),
        ({"cuda_graph": "on", **SYNCHRONOUS}, "graph_replays"),
    ],
)
def test_a_level_moves_its_witness(start, run, levels, counter) -> None:
    base, arm = start(config=QUIET, device=GPU), start(config=QUIET, device=GPU, **levels)
    run(arm, 6)
    assert arm.counters()[counter] > 0
    if counter != "tf32_products":  # a setting of the process
        run(base, 6)
        assert base.counters()[counter] == 0


@pytest.mark.parametrize(
    "levels",
    [{"pin_memory": "on"}, {"non_blocking": "on"}, {"prefetch": "stream"}, {"loader": "gpu_resident"}],
)
def test_how_batches_travel_changes_no_loss(start, levels) -> None:
    assert losses_of(start(config=QUIET, device=GPU, **levels), 4) == losses_of(
        start(config=QUIET, device=GPU), 4
    )


def test_a_replayed_graph_trains_as_the_eager_path(start) -> None:
    config = {**QUIET, "frozen_draws": True}
    levels = {**SYNCHRONOUS, "optimizer": "fused", "patching": "wrapper"}
    eager, graph = (
        losses_of(start(config=config, device=GPU, cuda_graph=level, **levels), 8) for level in ("off", "on")
    )
    assert graph == pytest.approx(eager, rel=1e-5)


def test_a_replayed_graph_draws_new_masks_each_time(start) -> None:
    found = losses_of(start(config={**QUIET, "lr": 1e-9}, device=GPU, cuda_graph="on", **SYNCHRONOUS), 8)
    assert len(set(found[4:])) == 4


def test_an_iteration_never_waits_for_the_device(start, run) -> None:
    levels = {**SYNCHRONOUS, "loader": "gpu_resident", "optimizer": "fused", "delta": "folded"}
    workload = start(config=QUIET, device=GPU, **levels)
    run(workload, 3)
    torch.cuda.set_sync_debug_mode("error")
    try:
        run(workload, 2)  # raises where anything waits
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert workload.arm.step == 5


@pytest.mark.parametrize("level", ["bf16", "fp16"])
def test_sixteen_bit_products_stay_close(start, level) -> None:
    config = {**QUIET, "pgd_steps": 0}
    base, arm = (
        losses_of(start(config=config, device=GPU, amp=amp, pgd_inner="detached"), 4)
        for amp in ("off", level)
    )
    assert arm == pytest.approx(base, rel=2e-2)


def test_the_device_trains_as_the_host_does(start) -> None:
    # Generators of devices differ: the terms that draw nothing are compared.
    config = {**QUIET, "losses": "forward", "modules": ["layers.*.mlp.fc"]}
    workload, host = start(config=config, device=GPU), start(config=config)
    terms = []
    for each in (workload, host):
        from perfsweep.workloads.api import NullClock

        found, _ = each.arm.gradients(each.arm.first_batch(), NullClock())
        terms.append([found[name].item() for name in ("unmasked", "ci_masked", "minimality", "faithfulness")])
    assert terms[0] == pytest.approx(terms[1], rel=1e-3)
