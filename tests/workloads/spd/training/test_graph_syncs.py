"""What a CUDA graph captures of a training never waits for the device, whatever its other levels are."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from host_syncs import HostSyncs
from pairwise import covering, legal_levels
from torch import Tensor

from perfsweep.pipelines.plan.arms import Space
from perfsweep.workloads.api import Clock, Device, LevelValue, NullClock
from perfsweep.workloads.spd.config import SpdConfig
from perfsweep.workloads.spd.reference import Reference
from perfsweep.workloads.spd.variants import cuda_graph
from perfsweep.workloads.spd.variants.cuda_graph import EAGER_ITERATIONS
from perfsweep.workloads.spd.workload import Spd

pytestmark = pytest.mark.workloads

H100 = Device("cuda", 1, "NVIDIA H100", 80 * 2**30, (9, 0), 2, True)
HERE = Device(cores=2, compiler=True)
QUIET = {"log_every": 1000, "eval_every": 1000, "save_every": 1000}
GRAPH: dict[str, LevelValue] = {"cuda_graph": "on", "mask_checks": "off"}
OUTSIDE = {"profiler", "num_workers"}
"""What fetches rows or watches does it outside of what is captured."""
SMALL = {"batch_size": 2, "components": 4, "modules": ["layers.*.attn.q", "layers.*.mlp.fc"], **QUIET}
TOY = {"preset": "tms_5-2_test", "batch_size": 8, **QUIET}
PRESETS: dict[str, dict[str, Any]] = {"lm": SMALL, "toy": TOY}


def admitted(preset: str) -> dict[str, list[LevelValue]]:
    """Every level by toggle that goes with a graph, on a GPU and here.

    What acts on CUDA alone is how rows travel, which no graph captures either.
    """
    space = Space(Spd.toggles, SpdConfig(**PRESETS[preset]), H100)
    return legal_levels(
        space, GRAPH, lambda name, level: not (level.unsupported(H100) or level.unsupported(HERE))
    )


class Watched:
    """Stands where the graph does: first iterations as they are, watching the one that it would capture."""

    found: list[str]

    def __init__(self, advance: Any, arm: Reference) -> None:
        self._advance, self._done = advance, 0

    def __call__(self, batch: Tensor, clock: Clock) -> Any:
        self._done += 1
        if self._done <= EAGER_ITERATIONS:
            return self._advance(batch, NullClock())
        with HostSyncs() as watch:
            result = self._advance(batch, NullClock())
        Watched.found += watch.found
        return result

    suspended = staticmethod(nullcontext)


@pytest.fixture(autouse=True)
def on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Captured code on a CPU: an optimiser that counts on the device, and nothing compiled."""
    monkeypatch.setattr(cuda_graph, "Replay", Watched)
    monkeypatch.setattr(
        sys.modules["torch.optim.adam"], "_get_capturable_supported_devices", lambda *_, **__: ["cpu"]
    )
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    Watched.found = []


@pytest.mark.parametrize("preset", PRESETS)
def test_no_two_levels_together_make_a_captured_iteration_wait(start: Any, run: Any, preset: str) -> None:
    """Every legal pair of levels occurs in one of few arms."""
    choices = admitted(preset)
    alone = [{**GRAPH, "profiler": level} for level in choices["profiler"]]
    pairs = {name: levels for name, levels in choices.items() if name not in OUTSIDE}
    space = Space(Spd.toggles, SpdConfig(**PRESETS[preset]), HERE)
    waiting = {}
    for arm in [*covering(space, GRAPH, pairs), *alone]:
        Watched.found = []
        run(start(config=PRESETS[preset], **arm), EAGER_ITERATIONS + 1)
        if Watched.found:
            waiting[str(arm)] = sorted(set(Watched.found))
    assert waiting == {}


@pytest.mark.parametrize(
    "mutant",
    [
        lambda arm: arm.updates.groups["components"][0].sum().item(),
        lambda arm: arm.updates.groups["components"][0].nonzero(),
    ],
)
def test_a_planted_wait_is_found(start: Any, run: Any, monkeypatch: pytest.MonkeyPatch, mutant: Any) -> None:
    advance = Reference.advance

    def slower(self: Reference, batch: Tensor, clock: Clock) -> Any:
        mutant(self)
        return advance(self, batch, clock)

    monkeypatch.setattr(Reference, "advance", slower)
    run(start(config=TOY, **GRAPH), EAGER_ITERATIONS + 1)
    assert Watched.found
