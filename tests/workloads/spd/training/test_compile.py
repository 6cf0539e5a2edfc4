"""Compiled scopes compute what the eager code does, with the classes, names and keys of before."""

# Drives `reference` of perfsweep.workloads.spd, and `pass_functions` of perfsweep.workloads.spd.maths.
from __future__ import annotations

from typing import Any

import pytest
import torch
from gradients_apart import worst

from perfsweep.workloads.api import NullClock
from perfsweep.workloads.spd.maths.importance import ImportanceFn
from perfsweep.workloads.spd.maths.masked_passes import Masking
from perfsweep.workloads.spd.variants import compilation

TOY = {
    "preset": "tms_5-2_test",
    "batch_size": 16,
    "components": 6,
    "log_every": 1000,
    "eval_every": 1000,
    "save_every": 1000,
}
SMALL = {"batch_size": 2, "components": 6, "modules": ["layers.*.mlp.fc"], "pgd_steps": 0}
QUIET = {"log_every": 1000, "eval_every": 1000, "save_every": 1000}
FAST: dict[str, Any] = {
    "delta": "folded",
    "stack_modules": "stacked",
    "prefix_reuse": "on",
    "pgd_layerwise": "single",
    "target_softmax": "cached",
    "pgd_inner": "detached",
}


@pytest.fixture(autouse=True)
def fresh():
    """No compiled code from other tests."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.workloads
def test_importance_functions_are_compiled_in_place(start, gradients_of, no_generated_code) -> None:
    arm, base = (gradients_of(config=TOY, compile=scope) for scope in ("ci_fns", "off"))
    assert worst(arm, base) <= 1e-4
    workload = start(config=TOY, compile="ci_fns")
    functions = workload.arm.decomposition.importance.functions
    assert all(isinstance(function, ImportanceFn) for function in functions.values())
    keys = start(config=TOY).arm.decomposition.state().keys()
    assert workload.arm.decomposition.state().keys() == keys


@pytest.mark.workloads
def test_annealing_the_exponent_compiles_once(start, run, no_generated_code) -> None:
    from perfsweep.pipelines.trial.compiles import CompileCounting

    workload = start(config={**TOY, "steps": 10}, compile="losses")
    run(workload, 1)
    with CompileCounting() as counting:
        run(workload, 3)
    assert not counting.result()["compiled_graphs"]


@pytest.mark.parametrize("losses", [None, "layerwise", "all", "forward"])
def test_what_is_handed_to_the_compiler_computes_the_naive_gradients(
    gradients_of, monkeypatch, losses
) -> None:
    """The functions to be compiled, run as they are: quick enough for all sets of terms and searches."""
    monkeypatch.setattr(compilation, "compiled", lambda function, fullgraph=True: function)
    # A stack, and a module that is alone.
    counts = {"layers.*.mlp.fc": 6, "layers.1.attn.o": 5}
    few = {"batch_size": 2, "counts": counts, "pgd_steps": 2, "dtype": "float64"}
    config: dict[str, Any] = {**QUIET, **few, **({"losses": losses} if losses else {})}
    assert worst(gradients_of(config=config, compile="full", **FAST), gradients_of(config=config)) <= 1e-12


HOOKS = {"patching": "persistent_hooks", "mask_checks": "off"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "levels", [{"compile": "full"}, {"compile": "breaks", **HOOKS}], ids=["full", "hooks"]
)
def test_captured_scopes_have_the_eager_gradients(gradients_of, no_generated_code, levels) -> None:
    config: dict[str, Any] = {**QUIET, **SMALL}
    assert worst(gradients_of(config=config, **levels), gradients_of(config=config)) <= 1e-4


@pytest.mark.slow
def test_generated_code_of_every_fast_form_has_the_naive_gradients(gradients_of) -> None:
    config: dict[str, Any] = {**QUIET, **SMALL, "losses": "all"}
    assert worst(gradients_of(config=config, compile="full", **FAST), gradients_of(config=config)) <= 1e-4


@pytest.mark.slow
def test_a_compiled_target_still_sees_masks_and_fills_its_cache(start, no_generated_code) -> None:
    config = {**QUIET, **SMALL}
    outputs = []
    for scope in ("target", "off"):
        arm = start(config=config, compile=scope, **HOOKS).arm
        deltas = arm.deltas(arm.decomposition.operands())
        moment = arm.moment(arm.first_batch(), arm.decomposition.operands(deltas), NullClock())
        assert len(moment.inputs) == 2
        masked = arm.divergence(
            moment, Masking({n: torch.zeros_like(c) for n, c in moment.lower.items()}), moment.operands
        )
        outputs.append((moment.inputs, masked.item()))
    assert outputs[0][1] > 0  # differs from the plain output
    assert outputs[0][1] == pytest.approx(outputs[1][1], rel=1e-5)
    for name, x in outputs[1][0].items():
        torch.testing.assert_close(outputs[0][0][name], x, rtol=1e-5, atol=1e-5)
