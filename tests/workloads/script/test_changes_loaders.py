"""Options of data loaders: what a script asks for, what it is given instead, and where that cannot act."""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from perfsweep.workloads.script.call_sites import CallSites
from perfsweep.workloads.script.changes import loaders
from perfsweep.workloads.script.changes.options import COUNTED, LoaderOptions, _count
from perfsweep.workloads.script.watched import Watched

DATA = list(range(8))


class Seen:
    """Loaders that a script has made, under given options."""

    def __init__(self, *asked: dict[str, Any], **given: Any) -> None:
        self.options = LoaderOptions()
        self.options.given = given
        self.scene: Any = SimpleNamespace(loaders=self.options, undo=ExitStack())
        with ExitStack() as undo:
            self.watched = Watched(undo)
            self.options.watch(self.watched, undo, CallSites())
            self.made = [DataLoader(DATA, **one) for one in asked]  # type: ignore[arg-type]
            self.batches = [batch for loader in self.made if not loader.num_workers for batch in loader]


def test_loaders_are_given_what_the_levels_say_and_keep_the_rest() -> None:
    seen = Seen({"batch_size": 4, "pin_memory": False}, num_workers=2, prefetch_factor=3)
    (loader,) = seen.made
    assert (loader.batch_size, loader.num_workers, loader.prefetch_factor) == (4, 2, 3)
    assert seen.options.asked[0]["num_workers"] == 0
    assert seen.options.asked[0]["dataset"] is None, "a script's data are not kept alive"


def test_without_workers_a_loader_is_not_given_what_only_workers_have() -> None:
    asked = {"num_workers": 2, "persistent_workers": True, "prefetch_factor": 4, "timeout": 5}
    (loader,) = Seen(asked, num_workers=0).made
    assert (loader.num_workers, loader.persistent_workers, loader.timeout) == (0, False, 0)
    (plain,) = Seen({}, persistent_workers=True).made
    assert plain.persistent_workers is False


WORKERS = {"num_workers": 2}
NO_WORKERS = "has loaders without workers; combine it with toggles.num_workers"


@pytest.mark.parametrize(
    ("asked", "given", "name", "level", "words"),
    [
        ([], {}, "num_workers", 2, "makes no DataLoader before its first iteration ends"),
        ([WORKERS, WORKERS], {}, "num_workers", 2, "has loaders with num_workers=2 already"),
        ([{}], {}, "persistent_workers", "on", NO_WORKERS),
        ([{}], {"num_workers": 1}, "persistent_workers", "on", None),
        (
            [{**WORKERS, "persistent_workers": True}, {}],
            {},
            "persistent_workers",
            "on",
            "has loaders with persistent_workers=True already",
        ),
        ([{**WORKERS, "prefetch_factor": 4}], {}, "prefetch_factor", 4, "has loaders with prefetch_factor=4"),
    ],
)
def test_a_level_that_cannot_act_says_why(
    asked: list, given: dict, name: str, level: Any, words: str | None
) -> None:
    seen = Seen(*asked, **given)
    found = loaders.obstacle(name, seen.scene, level)
    assert found is None if words is None else found is not None and found.startswith(words)


def test_batches_are_counted_by_what_their_loaders_are_given() -> None:
    watched: Any = SimpleNamespace(counts=dict.fromkeys(COUNTED, 0))
    for workers, persistent, ahead in ((3, True, 4), (0, True, 5), (2, False, 2)):
        names = ("_num_workers", "_persistent_workers", "_prefetch_factor", "_pin_memory")
        options = zip(names, (workers, persistent, ahead, True), strict=True)
        _count(watched, SimpleNamespace(**dict(options)), torch.ones(1))
    expected = {"loader_workers": 3, "persistent_batches": 1, "batches_ahead": 16, "pinned_batches": 0}
    assert watched.counts == expected
