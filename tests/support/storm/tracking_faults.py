"""Faults of the W&B server: it hangs, drops connections, refuses, cuts answers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from loopback import Action
from loopback import Fault as Shown

from storm.fault import FAULTS, Fault

if TYPE_CHECKING:
    from storm.world import World

WHERE = ("", "file_stream", "graphql")
"""Requests that are met: all, those that bring rows, those that ask or change something."""

CASES: tuple[tuple[str, str, Action, int], ...] = (
    ("wandb_hangs", "the W&B server hangs", Action.HANG, 0),
    ("wandb_drops", "the W&B server drops connections", Action.DROP, 0),
    ("wandb_drops_after", "the W&B server drops connections after their effect", Action.DROP_AFTER, 0),
    ("wandb_cuts", "the W&B server sends half an answer", Action.TRUNCATE, 0),
    ("wandb_errs", "the W&B server answers 500", Action.STATUS, 500),
    ("wandb_limits", "the W&B server answers 429", Action.STATUS, 429),
    ("wandb_refuses", "the W&B server answers 401", Action.STATUS, 401),
)


def _show(action: Action, status: int, world: World, rng: Random) -> Iterator[str]:
    where = WHERE[rng.randrange(len(WHERE))]
    with world.backend.showing(Shown(where, action, status=status)):
        yield f"for {where or 'every'} request"


for _name, _doc, _action, _status in CASES:
    FAULTS[_name] = Fault(_name, _doc, partial(_show, _action, _status), (2.0, 20.0), weight=1)
