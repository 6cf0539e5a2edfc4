"""Copies from pinned memory that do not wait, where the script leaves it open."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from perfsweep.workloads.api import Device
from perfsweep.workloads.script.call_sites import CallSites
from perfsweep.workloads.script.changes import copies
from perfsweep.workloads.script.changes.own_choices import OwnChoices
from perfsweep.workloads.script.edits.site import COPY


@pytest.mark.parametrize(
    ("pinned", "copy", "waits", "counted"),
    [
        (True, lambda one: one.to("cuda"), False, 1),
        (True, lambda one: one.cuda(), False, 1),
        (True, lambda one: one.to("cpu"), False, 0),
        (True, lambda one: one.to("cuda", non_blocking=False), True, 1),
        (True, lambda one: one.to("cuda", torch.float64, False), True, 1),
        (False, lambda one: one.to("cuda"), True, 1),
        (False, lambda one: one.cuda(), True, 1),
    ],
)
def test_only_copies_from_pinned_memory_return_at_once(
    monkeypatch: pytest.MonkeyPatch, pinned: bool, copy: Any, waits: bool, counted: int
) -> None:
    seen: list[dict[str, Any]] = []

    def copying(tensor: Tensor, *place: Any, **options: Any) -> Any:
        seen.append(options)
        return SimpleNamespace(is_cuda=place[:1] != ("cpu",))

    monkeypatch.setattr(Tensor, "is_pinned", lambda one: pinned)
    counts = Counter[str]()
    with ExitStack() as undo:
        Tensor.to = Tensor.cuda = copying  # type: ignore[method-assign, assignment]
        copies.begin(SimpleNamespace(watched=SimpleNamespace(counts=counts), undo=undo), "on")  # type: ignore[arg-type]
        assert copy(torch.zeros(2)).is_cuda == counted
    assert [options.get("non_blocking", False) for options in seen] == [not waits]
    assert counts["unwaited_copies"] == (0 if waits else counted)
    assert "to" not in vars(Tensor) and "cuda" not in vars(Tensor)


def test_calls_that_copy_from_pinned_memory_or_back_are_noted_until_the_first_mark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here, there = SimpleNamespace(is_cuda=False), SimpleNamespace(is_cuda=True)
    monkeypatch.setattr(Tensor, "is_pinned", lambda one: len(one) == 2)
    sites, own = CallSites([__file__]), OwnChoices()
    with own.until_first_mark:
        Tensor.to = Tensor.cuda = lambda one, *a, **k: there if a else here  # type: ignore
        copies.watch(SimpleNamespace(device=Device("cuda"), sites=sites, own=own))  # type: ignore[arg-type]
        torch.zeros(2).to("cuda")
        torch.zeros(3).to("cuda")
        torch.zeros(2).to()
        torch.zeros(2).to("cuda", non_blocking=True)
    (site,) = sites.found
    assert (site.what, site.called, site.is_users) == (COPY, "to", True)
    assert "to" not in vars(Tensor) and "cuda" not in vars(Tensor)
