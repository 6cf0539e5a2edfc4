"""Compiled layers: the same numbers, and no recompilation after every shape has been met."""

from __future__ import annotations

import pytest
import torch
import torch._dynamo


@pytest.fixture(autouse=True)
def forget_compiled_code():
    """Counters and guards of one test are no business of the next."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


def graphs() -> int:
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


ADDED = {"lora_rank": 4, "lora_layers": 1, "lora_targets": ["q", "down"], "deep_prefix": True}


@pytest.mark.workloads
def test_compiled_layers_compute_the_same_and_settle_after_the_first_step(
    start, run, evidence_of, deviations, no_generated_code
) -> None:
    reference = evidence_of({"passes": "merged"}, **ADDED)
    assert graphs() == 0
    # 33 rows in windows of four: the last window is filled up with rows of weight zero.
    workload = start({"passes": "merged", "compile": "block"}, data_n=33, **ADDED)
    run(workload, 2)
    settled = graphs()
    assert settled > 0
    run(workload, 7)
    assert graphs() == settled
    assert (
        max(deviations(evidence_of({"passes": "merged", "compile": "block"}, **ADDED), reference).values())
        <= 1e-10
    )


@pytest.mark.slow
def test_generated_code_stays_within_rounding(evidence_of, deviations) -> None:
    # Each model's layers, and each length of what precedes an early token, are code of their own.
    few = {"models": 1, "early_tokens": 2, "dtype": "float32"}
    arm, reference = (
        evidence_of({"passes": "merged", "compile": level}, **few) for level in ("block", "off")
    )
    found = deviations(arm, reference)
    assert max(found["terms"], found["gradient"]) <= 1e-5


@pytest.mark.workloads
@pytest.mark.parametrize(("level", "marks"), [("reduce_overhead", 3), ("block", 0), ("off", 0)])
def test_each_step_of_graphed_layers_begins_with_a_mark(
    start, run, monkeypatch: pytest.MonkeyPatch, level: str, marks: int
) -> None:
    """Without it the graphs of a step do not know when the last one's results may be overwritten."""
    from torch._inductor import config

    seen: list[int] = []
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: seen.append(1))
    with config.patch("triton.cudagraph_unexpected_rerecord_limit", 128):  # monkeypatch would hide the field
        run(start({"compile": level}), 3)
        assert config.triton.cudagraph_unexpected_rerecord_limit == (4096 if marks else 128)
    assert len(seen) == marks
