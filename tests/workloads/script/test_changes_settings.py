"""Settings of the process are made, counted and put back; what a script chooses itself is seen."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from perfsweep.workloads.script.call_sites import CallSites
from perfsweep.workloads.script.changes import settings
from perfsweep.workloads.script.changes.change import NO_MODULE
from perfsweep.workloads.script.changes.own_choices import OwnChoices


@pytest.fixture
def undo() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def scene_of(undo: ExitStack, *modules: nn.Module, **reasons: str) -> Any:
    own = SimpleNamespace(reasons=reasons, frozen_before=gc.get_freeze_count())
    watched = SimpleNamespace(counts=Counter(iterations=5))
    return SimpleNamespace(undo=undo, own=own, modules=modules, watched=watched)


@pytest.mark.parametrize(
    ("begin", "level", "counted", "found"),
    [
        (settings.begin_tf32, "on", "tf32_iterations", 5),
        (settings.begin_benchmark, "on", "benchmarked_iterations", 5),
        (settings.begin_threads, 2, "threads", 2),
        (settings.begin_collector, "off", "uncollected_iterations", 5),
    ],
    ids=["tf32", "cudnn_benchmark", "threads", "gc=off"],
)
def test_a_setting_shows_in_its_counter_alone_and_is_put_back(
    begin: Callable[..., None], level: Any, counted: str, found: int
) -> None:
    torch.set_num_threads(1)
    with ExitStack() as undo:
        scene = scene_of(undo)
        before = settings.counts(scene)
        assert not any(count for name, count in before.items() if name != "threads")
        begin(scene, level)
        assert settings.counts(scene) == {**before, counted: found} != before
    assert settings.counts(scene) == before
    assert gc.isenabled()


def test_what_was_frozen_before_a_script_began_is_no_sign_of_the_level() -> None:
    gc.freeze()
    try:
        with ExitStack() as undo:
            scene = scene_of(undo)
            assert settings.counts(scene)["frozen_iterations"] == 0
            more = [[] for _ in range(1000)]
            settings.begin_collector(scene, "frozen")
            assert settings.counts(scene)["frozen_iterations"] == 5 and more
    finally:
        gc.unfreeze()


def test_threads_that_are_there_already_are_no_change(undo: ExitStack) -> None:
    torch.set_num_threads(1)
    assert settings.threads_obstacle(scene_of(undo), 1) == "runs with threads=1 already"
    assert settings.threads_obstacle(scene_of(undo), 2) is None
    told = settings.threads_obstacle(scene_of(undo, threads="sets its number of threads"), 2)
    assert told == "sets its number of threads itself"


def test_cudnn_can_choose_where_a_module_convolves(undo: ExitStack) -> None:
    convolving = nn.Sequential(nn.ReLU(), nn.Conv1d(1, 1, 1))
    assert settings.benchmark_obstacle(scene_of(undo, nn.Linear(1, 1), convolving), "on") is None
    told = settings.benchmark_obstacle(scene_of(undo, nn.Linear(1, 1)), "on")
    assert told == "has no convolution in the modules it calls"
    assert settings.benchmark_obstacle(scene_of(undo), "on") == NO_MODULE


def disabled_autocast() -> None:
    with torch.autocast("cpu", enabled=False):
        pass


def autocast() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        pass


def chooses_kernels() -> None:
    with sdpa_kernel(SDPBackend.MATH):
        pass


def recomputes(reentrant: bool) -> Callable[[], None]:
    return lambda: checkpoint(torch.sin, torch.ones(1, requires_grad=True), use_reentrant=reentrant)


@pytest.mark.parametrize(
    ("does", "reasons"),
    [
        (lambda: None, {}),
        (autocast, {"amp": "autocasts"}),
        (disabled_autocast, {}),
        (lambda: torch.amp.GradScaler("cpu"), {"amp": "scales its losses"}),
        (lambda: torch.amp.GradScaler("cpu", enabled=False), {}),
        (lambda: torch.compile(None), {"compile": "calls torch.compile"}),
        (lambda: torch.compile(None, backend="eager"), {}),
        (chooses_kernels, {"sdpa": "chooses the kernels of its attention"}),
        (recomputes(True), {"grad_checkpointing": "recomputes activations"}),
        (recomputes(False), {"grad_checkpointing": "recomputes activations"}),
        (lambda: torch.set_num_threads(2), {"threads": "sets its number of threads"}),
        (gc.disable, {"gc": "sets Python's collector"}),
    ],
)
def test_what_a_script_does_itself_is_known_at_its_first_mark(
    does: Callable[[], Any], reasons: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "compile", lambda model, backend="inductor": model)  # it imports for seconds
    torch.set_num_threads(1)
    own = OwnChoices()
    try:
        with ExitStack() as undo:
            own.watch(undo, CallSites())
            does()
            own.first_mark()
            assert own.reasons == reasons
            autocast()
            assert own.reasons == reasons, "after the first mark nobody looks"
    finally:
        gc.enable()
        torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("instead", "dropped"), [(None, [True, False]), (True, [True, True]), (False, [False, False])]
)
def test_how_gradients_are_reset_is_seen_and_can_be_replaced(
    instead: bool | None, dropped: list[bool]
) -> None:
    weight = nn.Parameter(torch.ones(1))
    optimiser = torch.optim.SGD([weight])
    own, found = OwnChoices(), []
    resetting = torch.optim.Optimizer.zero_grad
    with ExitStack() as undo:
        sites = CallSites()
        own.watch(undo, sites)
        own.drops_instead = instead
        own.first_mark()
        for to_none in (True, False):
            weight.grad = torch.ones(1)
            optimiser.zero_grad(set_to_none=to_none)
            found.append(weight.grad is None)
        assert own.drops_gradients == {True, False}
        own.end()
        assert own.complete
        seen = len(sites.found)
        optimiser.zero_grad()
        assert len(sites.found) == seen == 1, "calls that are timed are not looked at"
        assert (torch.optim.Optimizer.zero_grad is resetting) == (instead is None)
    assert found == dropped
    assert torch.optim.Optimizer.zero_grad is resetting
