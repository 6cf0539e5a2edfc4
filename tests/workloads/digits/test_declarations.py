"""What the digits workload declares, and what it refuses."""

from __future__ import annotations

import pytest
from torch.utils.flop_counter import FlopCounterMode

from perfsweep.workloads.api import REPLAY, Device, Parity
from perfsweep.workloads.digits.declaration import TOGGLES
from perfsweep.workloads.digits.workload import Digits

LAPTOP = Device(type="cpu", cores=4, compiler=True)


def test_levels_that_round_bound_every_comparison_with_the_reference() -> None:
    compared = {check.name for check in (REPLAY, *Digits.checks) if check.against == "reference"}
    rounding = [level for toggle in TOGGLES for level in toggle.levels if level.parity is Parity.TOLERANCE]
    assert [level.value for level in rounding] == ["bf16", "fp16", "on"]
    assert all(set(level.bounds) == compared for level in rounding)


def test_on_cpu_exactly_these_levels_are_unsupported_and_say_why() -> None:
    reasons = {
        (t.name, lv.value): lv.unsupported(LAPTOP)
        for t in TOGGLES
        for lv in t.levels
        if lv.unsupported(LAPTOP)
    }
    assert set(reasons) == {
        ("tf32", "on"),
        ("compile", "reduce_overhead"),
        ("pin_memory", "on"),
        ("non_blocking", "on"),
        ("prefetch", "stream"),
    }
    assert all("cpu" in str(reason) for reason in reasons.values())


@pytest.mark.parametrize("config", [{"width": 8, "depth": 3}, {"model": "mlp", "width": 32, "depth": 2}])
def test_the_formula_of_work_agrees_with_a_flop_counter(start, run, config) -> None:
    workload = start(config=config)
    run(workload, 1)
    with FlopCounterMode(display=False) as counted:
        run(workload, 1)
    # The formula is exact: both count products only, two operations for each.
    assert workload.work().flops * 128 == counted.get_total_flops()
