"""What the workload declares."""

from __future__ import annotations

import pytest

from perfsweep.pipelines.plan.arms import Space
from perfsweep.workloads.spd.config import SpdConfig
from perfsweep.workloads.spd.presets import PRESETS
from perfsweep.workloads.spd.workload import Spd


def test_the_quick_start_is_refused_with_the_reason() -> None:
    from perfsweep.workloads.errors import ConfigError

    with pytest.raises(ConfigError, match=r"compile=target requires patching=wrapper or persistent_hooks"):
        Space(Spd.toggles, SpdConfig()).legal({"compile": "target"})


def test_the_formula_of_work_follows_the_counted_products(start) -> None:
    from perfsweep.pipelines.trial.counting.counters import Counting
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


OF_RECIPE = {
    "batch_size": ("batch", 8),
    "seq_len": ("seq", 12),
    "steps": ("steps", 7),
    "lr": ("lr", 0.5),
    "schedule": ("schedule", "linear"),
    "final_lr": ("final_lr", 0.25),
    "lr_warmup": ("lr_warmup", 0.1),
    "clip_components": ("clip_components", 0.3),
    "clip_importance": ("clip_importance", 0.4),
    "pnorm": ("pnorm", 1.5),
    "final_p": ("final_p", 0.9),
    "anneal_from": ("anneal_from", 0.2),
    "anneal_to": ("anneal_to", 0.6),
    "beta": ("beta", 0.1),
    "importance": ("importance", "mlp"),
    "hidden": ("hidden", (5, 4)),
    "counts": ("modules", (("layers.0.attn.q", 3), ("layers.1.*", 4))),
    "warmup_steps": ("warmup_steps", 9),
    "warmup_lr": ("warmup_lr", 0.7),
    "warmup_decay": ("warmup_decay", 0.2),
    "log_every": ("log_every", 3),
    "eval_every": ("eval_every", 0),
    "save_every": ("save_every", 0),
    "eval_batches": ("eval_batches", 2),
}


@pytest.mark.parametrize("field", OF_RECIPE)
def test_every_value_of_the_recipe_can_be_set(field) -> None:
    name, value = OF_RECIPE[field]
    given = dict(value) if field == "counts" else list(value) if isinstance(value, tuple) else value
    recipe = SpdConfig(**{field: given}).recipe
    assert getattr(recipe, name) == value != getattr(PRESETS["lm_test"], name)


def test_terms_can_be_weighed_added_and_taken_out() -> None:
    config = SpdConfig(coefficients={"faithfulness": 2.0, "pgd_subset": 0.0, "ci_masked": 0.5, "pgd": 1.0})
    assert {loss.kind: loss.coeff for loss in config.recipe.losses} == {
        "minimality": 1e-3,
        "stochastic_subset": 0.5,
        "faithfulness": 2.0,
        "ci_masked": 0.5,
        "pgd": 1.0,
    }
    search = {"pgd_steps": 3, "pgd_step_size": 0.2, "pgd_init": "ones", "pgd_scope": "datapoint"}
    worst = [loss for loss in SpdConfig(**search).recipe.losses if loss.adversarial]
    assert [(one.steps, one.step_size, one.init, one.scope) for one in worst] == [
        (3, 0.2, "ones", "datapoint")
    ]


def test_no_clipping_is_asked_for_by_zero() -> None:
    assert PRESETS["lm_4l"].clip_components is not None
    assert SpdConfig(preset="lm_4l", clip_components=0.0).recipe.clip_components is None


def test_what_never_happens_is_no_part_of_the_cadence(start, run) -> None:
    rows: list = []
    workload = start(config={"log_every": 2, "eval_every": 0, "save_every": 0}, log=rows.append)
    run(workload, 2)
    assert workload.cadence == 2
    assert [row["step"] for row in rows] == [2.0]
    assert not (workload.context.scratch_dir / "checkpoint.pt").exists()
