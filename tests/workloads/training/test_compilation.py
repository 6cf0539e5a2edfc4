"""What torch.compile is asked for at each level of the toggle `compile`; compiling itself takes seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from perfsweep.workloads.training.compilation import MODES, compile_call, compile_model


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What torch.compile is given, and marks between replays of graphs."""
    asked: list[Any] = []

    def compiled(call: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        asked.append((call, options))
        return call

    monkeypatch.setattr(torch, "compile", compiled)
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: asked.append("replay"))
    return asked


@pytest.mark.parametrize(
    ("level", "mode"),
    [
        ("default", None),
        ("reduce_overhead", "reduce-overhead"),
        ("max_autotune", "max-autotune-no-cudagraphs"),
    ],
)
def test_a_level_is_a_mode_and_the_code_may_be_interrupted_unless_it_must_not(
    level: str, mode: str | None, asked: list[Any]
) -> None:
    model = nn.Linear(2, 2)
    compile_model(model, level)
    compile_model(model, level, fullgraph=True)
    compile_call(model, level)
    assert asked == [(model, {"fullgraph": fullgraph, "mode": mode}) for fullgraph in (False, True, False)]


def test_off_is_the_model_itself(asked: list[Any]) -> None:
    model = nn.Linear(2, 2)
    assert compile_model(model, "off") is model and asked == []
    assert "off" not in MODES


def test_graphs_are_told_where_a_replay_begins_and_other_code_is_not(asked: list[Any]) -> None:
    x = torch.ones(2)
    for level in ("default", "reduce_overhead"):
        compile_model(nn.Identity(), level)(x)
    assert [one for one in asked if one == "replay"] == ["replay"] and asked[-1] == "replay"


def test_a_bound_method_is_compiled_in_a_frame_of_its_own_with_a_name_of_its_own(asked: list[Any]) -> None:
    model = nn.Linear(2, 1)
    calls = [compile_call(model.forward, "default") for _ in range(2)]
    names = {call.__code__.co_name for call in calls}
    assert len(names) == 2, "shapes of one model would make another's dynamic"
    assert torch.equal(calls[0](torch.ones(2)), model(torch.ones(2)))
