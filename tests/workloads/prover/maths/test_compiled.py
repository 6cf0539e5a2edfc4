"""What compiling a step has cost, and when: by a compiler that says how many graphs it has made."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from perfsweep.workloads.prover.variants import compilation
from perfsweep.workloads.prover.variants.compilation import CompiledStep


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """New graphs of each of the coming calls."""
    coming: list[int] = []
    total = [10]

    def compile_step(step: Any, **options: Any) -> Any:
        assert options == {"mode": "reduce-overhead", "dynamic": False, "fullgraph": True}

        def run(rows: Any) -> Any:
            total[0] += coming.pop(0)
            return step(rows)

        return run

    monkeypatch.setattr(torch, "compile", compile_step)
    monkeypatch.setattr(compilation, "compiled_graphs", lambda: total[0])
    return coming


def test_graphs_are_counted_and_those_after_the_warm_up_again(graphs: list[int]) -> None:
    rows: Any = SimpleNamespace(done=torch.tensor([False]))
    step = CompiledStep(lambda given: (given, {"states_padded": 7}), "reduce_overhead")  # type: ignore[arg-type]
    graphs += [2, 0, 0, 1, 0]
    seen = []
    for number in range(5):
        step.warm = number >= 2
        found, tally = step(rows)
        assert found is rows
        assert tally == {"states_padded": 7, "states_evaluated": 7}
        seen.append((step.graphs, step.after_warmup, step.calls, step.compile_s > 0))
    assert seen == [(2, 0, 1, True), (2, 0, 2, True), (2, 0, 3, True), (3, 1, 4, True), (3, 1, 5, True)]


@pytest.mark.parametrize(("limit", "raised"), [(8, 64), (100, 100)])
def test_more_sizes_than_eight_stay_compiled(graphs: list[int], limit: int, raised: int) -> None:
    with torch._dynamo.config.patch(recompile_limit=limit):  # monkeypatch would take the field away
        CompiledStep(lambda given: (given, {}), "reduce_overhead")  # type: ignore[arg-type]
        assert torch._dynamo.config.recompile_limit == raised
