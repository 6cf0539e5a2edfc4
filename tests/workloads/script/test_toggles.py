"""Levels put upon a script from outside: what each is given to, what is refused when, and what is counted."""

# Drives `own_choices` and `updates` of perfsweep.workloads.script.changes.
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from declared import described, lines
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from perfsweep.workloads.api import Device, LevelValue
from perfsweep.workloads.errors import UnsupportedHere
from perfsweep.workloads.script.changes import own_choices
from perfsweep.workloads.script.changes.scene import Scene, never, nothing
from perfsweep.workloads.script.toggles import CHANGES, EVERY, apply, counters, obstacles
from perfsweep.workloads.script.watched import Watched

Set = Callable[..., Scene]


@pytest.fixture
def scene() -> Iterator[Set]:
    """The scene of a script that is about to start, with these levels put upon it."""
    with ExitStack() as undo:

        def begin(**levels: LevelValue) -> Scene:
            made = Scene("train.py", Device(), Watched(undo), undo)
            apply(levels, made)
            return made

        yield begin


def train(batches: int = 1, zeroes: bool = True, **optimiser: Any) -> tuple[nn.Module, torch.optim.Optimizer]:
    """What a script does: a loader, a model, an optimiser, and some iterations."""
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    one = torch.optim.AdamW(model.parameters(), **optimiser)
    for (x,) in list(DataLoader(TensorDataset(torch.ones(4 * batches, 4)), 4)):
        if zeroes:
            one.zero_grad()
        model(x).sum().backward()
        one.step()
    return model, one


def at_first_mark(made: Scene) -> None:
    made.watched.end_search()
    for change in made.at_first_mark:
        change()


def test_a_level_acts_from_the_first_mark_on_and_until_the_end(scene: Set) -> None:
    before = torch.get_num_threads()
    made = scene(amp="bf16", threads=before + 1)
    model, _ = train()
    exact = model(torch.ones(1, 4))
    assert exact.tolist() != exact.bfloat16().tolist() and torch.get_num_threads() == before
    at_first_mark(made)
    rounded = model(torch.ones(1, 4))
    assert rounded.tolist() == rounded.bfloat16().tolist() and torch.get_num_threads() == before + 1
    assert counters(made)["threads"] == before + 1
    made.undo.close()
    assert torch.get_num_threads() == before


def test_loaders_are_given_workers_from_the_first_on(scene: Set) -> None:
    scene(num_workers=2, persistent_workers="on")
    loader = DataLoader(TensorDataset(torch.ones(2)))
    assert (loader.num_workers, loader.persistent_workers) == (2, True)


@pytest.mark.parametrize(
    ("levels", "does", "said"),
    [
        ({"amp": "bf16"}, lambda: None, "toggles.amp=bf16: train.py calls no module with parameters"),
        (
            {"sdpa": "math", "amp": "bf16"},
            train,
            "toggles.sdpa=math: train.py is not seen to call scaled_dot",
        ),
    ],
)
def test_a_level_that_can_act_on_nothing_is_refused_at_the_first_mark(
    scene: Set, levels: dict[str, LevelValue], does: Callable[[], Any], said: str
) -> None:
    made = scene(**levels)
    _alive = does()
    with pytest.raises(UnsupportedHere, match=f"^{said}"):
        at_first_mark(made)


def test_obstacles_are_named_by_toggle_or_where_some_levels_can_act_by_level(scene: Set) -> None:
    made = scene()
    _alive = train(zeroes=False)
    at_first_mark(made)
    early = obstacles(made)
    assert "zero_grad" not in early and "zero_grad=none" not in early
    made.watched.end_iteration()
    found = obstacles(made)
    assert found["channels_last"] == "train.py has no convolution over images in the modules it calls"
    assert found["sdpa=math"].startswith("train.py is not seen to call scaled_dot_product_attention")
    assert (
        found["sdpa=efficient"] == found["cudnn_benchmark"] == ("acts on CUDA devices only, and this is cpu")
    )
    assert "sdpa" not in found
    assert found["num_workers=0"] == "train.py has loaders with num_workers=0 already"
    assert found["num_workers=2"].startswith(
        "train.py takes its batches from a DataLoader before its iterations"
    )
    assert {"amp", "amp=bf16", "optimizer=fused", "threads=2"} & found.keys() == set()
    assert found["zero_grad"].startswith("train.py does not call zero_grad")


DECLARED = """
amp off: bf16/fp16 (low_precision_ops tolerance first_gradient<0.1 losses<0.02 parameters<0.05 told)
tf32 off: on (tf32_iterations tolerance first_gradient<0.03 losses<0.005 parameters<0.03 on gpu told)
compile off: default (compiled_graphs first_gradient<0.005 losses<0.001 parameters<0.02 on old+gpu+cpu told),
  reduce_overhead (compiled_graphs first_gradient<0.005 losses<0.001 parameters<0.02 on old+gpu told),
  max_autotune (compiled_graphs first_gradient<0.005 losses<0.001 parameters<0.02 on old+gpu+cpu autotunes
  told)
optimizer default: foreach/fused (ops losses<0.001 parameters<0.02 told)
cudnn_benchmark off: on (benchmarked_iterations losses<0.001 parameters<0.02 on old+gpu told)
channels_last off: on (channels_last_inputs first_gradient<0.005 losses<0.001 parameters<0.02 told)
sdpa default: flash/math (attention_kernels losses<0.001 parameters<0.02 told), efficient/cudnn
  (attention_kernels losses<0.001 parameters<0.02 on old+gpu told)
num_workers default, any integer from 0 to 64 loader_workers stochastic losses<0.05 told: 0/2/4
  (loader_workers stochastic losses<0.05 told)
pin_memory off: on (pinned_batches on old+gpu told)
persistent_workers off: on (persistent_batches told)
prefetch_factor default, any integer from 1 to 64 batches_ahead told: 4 (batches_ahead told)
non_blocking off: on (unwaited_copies on old+gpu told)
zero_grad default: zero (ops), none (ops told)
grad_checkpointing off: on (saved_bytes told)
threads default, any integer from 1 to 256 threads losses<0.001 parameters<0.02 told: 1 (threads losses<0.001
  parameters<0.02 told)
gc automatic, owns_collector: frozen (frozen_iterations told), off (uncollected_iterations told)
data loaded, ideal_loader: cached (kept_batches)
"""
"""Baseline, then each level: its witness, class and bounds, and where it cannot act."""


def test_every_level_declares_what_it_changes_and_where_it_acts() -> None:
    assert list(described(EVERY)) == lines(DECLARED)


def test_every_toggle_acts_when_its_change_can_and_obstacles_that_show_later_are_asked_for() -> None:
    loaders = {"num_workers", "pin_memory", "prefetch_factor", "persistent_workers"}
    before = {name for name, one in CHANGES.items() if one.prepare is not nothing}
    assert before == {*loaders, "amp", "optimizer", "data"}
    at_mark = {name for name, one in CHANGES.items() if one.begin is not nothing}
    assert at_mark == {one.name for one in EVERY} - before | {"amp"}
    late = {name for name, one in CHANGES.items() if one.late_obstacle is not never}
    assert late == {*loaders, "compile", "zero_grad"}


def test_kernels_of_attention_are_one_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_choices, "enabled_kernels", lambda: (True, False, True, True))
    seen = own_choices.AttentionKernels()
    assert [seen.code(compiled) for compiled in (False, True)] == [0, 16 * (1 + 4 + 8)]
    for kinds, code in (({"flash"}, 1), ({"efficient"}, 2), ({"flash", "cudnn"}, 5)):
        seen.after = kinds
        assert seen.code(compiled=False) == code
    seen.first_mark()
    assert seen.before == {"flash", "cudnn"} and seen.code(compiled=False) == 8
