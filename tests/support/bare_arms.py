"""Arms of a LatentWire training of which nothing is built: parts are given by a test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from perfsweep.pipelines.plan.arms import Space
from perfsweep.workloads.api import Context, Device, LevelValue
from perfsweep.workloads.latentwire.config import LatentWireConfig
from perfsweep.workloads.latentwire.maths.encoder import table_rms
from perfsweep.workloads.latentwire.maths.frozen import Model
from perfsweep.workloads.latentwire.maths.lm import CausalLM
from perfsweep.workloads.latentwire.variants import TOGGLES, arm

HERE = Device(compiler=True, cores=2)


def bare(
    levels: Mapping[str, LevelValue] | None = None,
    log: Any = lambda row: None,
    rank: int = 0,
    world: int = 1,
    **config: Any,
) -> Any:
    """An arm of these levels and of the levels that they require."""
    made = LatentWireConfig(**{"preset": "test", "tokenizer": "bytes", **config})
    chosen = Space(TOGGLES, made, HERE).closure({"effective_batch": 4, "micro_batch": 4, **(levels or {})})
    context = Context(HERE, Path(), Path(), log=log, rank=rank, world=world)
    return arm(chosen)(made, chosen, context)


def with_model(
    made: Any,
    lm: CausalLM,
    before: Sequence[int] = (),
    anchor: Sequence[int] = (),
    header: Sequence[int] = (),
) -> Model:
    """The one model of an arm, whose counts become the arm's; prompts begin with `header`."""
    layout: Any = SimpleNamespace(before=list(before), anchor_ids=list(anchor))
    trained: Any = SimpleNamespace(lora=None, deep=None)
    made.counts = lm.chosen.counts
    made.corpus = SimpleNamespace(header=lambda number: list(header))
    made.models = {0: Model.of(0, lm, trained, table_rms(lm.table), layout)}
    return made.models[0]
