"""What the workload declares."""

from __future__ import annotations

import pytest

from perfsweep.pipelines.plan.arms import Space
from perfsweep.workloads.spd.config import SpdConfig
from perfsweep.workloads.spd.workload import Spd


def test_the_quick_start_is_refused_with_the_reason() -> None:
    from perfsweep.workloads.errors import ConfigError

    with pytest.raises(ConfigError, match=r"compile=target requires patching=wrapper or persistent_hooks"):
        Space(Spd.toggles, SpdConfig()).legal({"compile": "target"})


def test_the_formula_of_work_follows_the_counted_products(start) -> None:
    from perfsweep.pipelines.trial.counters import Counting
    from perfsweep.workloads.api import NullClock

    quiet = {"log_every": 1000, "eval_every": 0, "save_every": 0, "pgd_steps": 1}
    for levels in ({}, {"delta": "folded"}):
        workload = start(config=quiet, **levels)
        workload.step(NullClock())
        with Counting(1) as counting:
            workload.step(NullClock())
        positions = 4 * 16
        assert workload.work().flops * positions == pytest.approx(counting.result()["flops"], rel=0.08)


@pytest.mark.parametrize(
    ("arm", "products"),
    [({}, "float32"), ({"config": {"dtype": "float64"}}, "float64"), ({"amp": "bf16"}, "half")],
    ids=["float32", "float64", "bf16"],
)
def test_work_names_the_type_of_its_products(start, arm, products) -> None:
    assert start(**arm).work().products == products


def test_what_never_happens_is_no_part_of_the_cadence(start, run) -> None:
    rows: list = []
    workload = start(config={"log_every": 2, "eval_every": 0, "save_every": 0}, log=rows.append)
    run(workload, 2)
    assert workload.cadence == 2
    assert [row["step"] for row in rows] == [2.0]
    assert not (workload.context.scratch_dir / "checkpoint.pt").exists()
