"""Compiled training: the same numbers, one graph, and no recompilation by evaluations or probes."""

from __future__ import annotations

import pytest
import torch
import torch._dynamo

CONFIG = {"model": "mlp", "width": 16, "eval_every": 1, "checkpoint_every": 1}
COMPARED = ("losses", "first_gradient", "probe_logits", "parameters")


@pytest.fixture(autouse=True)
def forget_compiled_code():
    """Counters and guards of one test are no business of the next."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


def graphs() -> int:
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def relative(arm: torch.Tensor, reference: torch.Tensor) -> float:
    return ((arm.double() - reference.double()).norm() / reference.double().norm()).item()


@pytest.mark.workloads
def test_one_graph_serves_training_and_probes_and_evaluations_need_none(
    evidence_of, no_generated_code
) -> None:
    reference = evidence_of(24, config=CONFIG)
    assert graphs() == 0
    # 24 iterations hold two evaluations and two checkpoints.
    arm = evidence_of(24, config=CONFIG, compile="default")
    assert graphs() == 1
    for name in COMPARED:
        # The same kernels in the same order; decompositions may move the last bits.
        assert relative(arm.tensors[name], reference.tensors[name]) <= 1e-5, name


@pytest.mark.slow
def test_generated_code_computes_the_same_with_other_levels(evidence_of) -> None:
    # Fusion reorders sums. Measured for this network: at most 6e-7.
    levels = {"grad_checkpointing": "on", "micro_batch": 64, "optimizer": "fused", "zero_grad": "none"}
    assert_compiled_training_computes_the_same(evidence_of, levels)


@pytest.mark.workloads
def test_of_two_shapes_the_second_graph_is_general(evidence_of, no_generated_code) -> None:
    assert_compiled_training_computes_the_same(evidence_of, {"micro_batch": 48})


def assert_compiled_training_computes_the_same(evidence_of, levels) -> None:
    arm, reference = (
        evidence_of(3, config=CONFIG, **chosen) for chosen in ({"compile": "default", **levels}, {})
    )
    assert 1 <= graphs() <= 2
    for name in COMPARED:
        assert relative(arm.tensors[name], reference.tensors[name]) <= 1e-5, name
