"""Settings of the process and updates of optimisers are changed and put back; own choices are seen."""

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
from torch.optim import SGD, Adagrad, AdamW, Optimizer
from torch.utils.checkpoint import checkpoint

from perfsweep.workloads.script.call_sites import CallSites
from perfsweep.workloads.script.changes import settings
from perfsweep.workloads.script.changes.options import UpdateOptions
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
        (lambda: torch.compile(None), {"compile": "calls torch.compile"}),
        (lambda: torch.compile(None, backend="eager"), {}),
        (chooses_kernels, {"sdpa": "chooses the kernels of its attention"}),
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


@pytest.mark.parametrize(("instead", "dropped"), [(None, [True, False]), (False, [False, False])])
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


def made(kind: type[Optimizer], level: str, **asked: bool) -> tuple[Optimizer, UpdateOptions]:
    """An optimiser that a script makes under a level, and what was seen of it."""
    options = UpdateOptions()
    options.level = level
    with ExitStack() as undo:
        options.watch(undo, CallSites())
        return kind([torch.zeros(2, requires_grad=True)], **asked), options


# AdamW makes itself by Adam's constructor.
@pytest.mark.parametrize("kind", [AdamW, Adagrad])
def test_every_optimiser_is_made_with_the_level(kind, level: str = "fused") -> None:
    optimiser, seen = made(kind, level)
    assert optimiser.defaults[level] is True
    assert not seen.asked


@pytest.mark.parametrize("kind", [SGD, AdamW])
def test_what_a_script_asks_for_itself_is_seen_and_given_way_to_the_level(kind) -> None:
    optimiser, seen = made(kind, "fused", foreach=True)
    assert seen.asked == {"foreach"}
    assert optimiser.defaults["fused"] is True and optimiser.defaults["foreach"] is False
