"""Workers that are kept leave the order of a script's rows what it is without."""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter as Iterating

from perfsweep.workloads.script.changes import loaders
from perfsweep.workloads.script.changes.loader_options import LoaderOptions


def test_a_kept_iterator_draws_what_a_new_one_would_have_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(Iterating, "_reset", lambda one, loader, first_iter=False: seen.append(first_iter))
    options, before = LoaderOptions(), Iterating._reset
    loader: Any = SimpleNamespace(generator=torch.Generator().manual_seed(1))
    new = torch.Generator().manual_seed(1)
    with ExitStack() as undo:
        loaders.keep_workers(SimpleNamespace(loaders=options, undo=undo), "on")  # type: ignore[arg-type]
        assert options.given == {"persistent_workers": True}
        Iterating._reset(None, loader, True)  # type: ignore[arg-type]
        assert torch.equal(loader.generator.get_state(), new.get_state()), "it has drawn already"
        Iterating._reset(None, loader)  # type: ignore[arg-type]
    torch.empty((), dtype=torch.int64).random_(generator=new)
    assert torch.equal(loader.generator.get_state(), new.get_state())
    assert seen == [True, False] and Iterating._reset is before
