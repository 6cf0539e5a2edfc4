"""Code that Inductor would capture as CUDA graphs never waits for the device, whatever the other levels are.

SPD captures by itself: see its own test. Compiled functions run as they are here, watched for what would
wait: there the graph would break, and part of the iteration silently run without one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from host_syncs import HostSyncs
from pairwise import covering, legal_levels

from perfsweep.pipelines.plan.arms import Space
from perfsweep.pipelines.plan.plan import load_workload
from perfsweep.workloads import registry
from perfsweep.workloads import toggles as shared
from perfsweep.workloads.api import Context, Device, Level, LevelValue, NullClock

pytestmark = pytest.mark.workloads

H100 = Device("cuda", 1, "NVIDIA H100", 80 * 2**30, (9, 0), 2, True)
HERE = Device(cores=2, compiler=True)
LATENTWIRE = {"preset": "test", "tokenizer": "bytes", "max_prompt": 200, "data_n": 16, "held_out": 4}
WORKLOADS: dict[str, tuple[dict[str, Any], dict[str, LevelValue]]] = {
    "digits": ({}, {}),
    "prover": ({"queries": 1, "corruptions": 2}, {"warmup": "tiny"}),
    "latentwire": ({**LATENTWIRE, "eval_rows": 2, "max_new": 4}, {"effective_batch": 4, "micro_batch": 4}),
}

COMPILED = {
    "prover": ("fact_index", "pack_width", "rule_pairs", "index_dtype", "policy_rows", "fold", "compaction"),
    "latentwire": ("lm_dtype", "amp", "grad_checkpointing"),
}
"""Toggles that change what is compiled, where that is a part of the iteration; elsewhere all do."""


def admitted(name: str) -> dict[str, list[LevelValue]]:
    """Every level by toggle that goes with a graph, on a GPU and here."""
    config, small = WORKLOADS[name]
    cls, made = load_workload({"name": name, **config})
    space = Space(cls.toggles, made, H100)

    def wanted(toggle: str, level: Level) -> bool:
        own_process = level.ranks > 1 or level.per_gpu or level.env
        refused = level.unsupported(H100) or level.unsupported(HERE)
        return toggle in COMPILED.get(name, (toggle,)) and not (own_process or refused)

    return legal_levels(space, {**small, **graphed(cls)}, wanted)


def graphed(cls: Any) -> dict[str, LevelValue]:
    """The level of a workload that replays CUDA graphs."""
    return {
        toggle.name: level.value
        for toggle in cls.toggles
        for level in toggle.levels
        if level.unsupported is shared.needs_graphs
    }


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> HostSyncs:
    """What compiled functions did that would wait."""
    found = HostSyncs(from_host=False)

    def compile(function: Any = None, **options: Any) -> Callable[..., Any]:
        def watched(*arguments: Any, **named: Any) -> Any:
            with found:
                return function(*arguments, **named)

        return watched

    monkeypatch.setattr(torch, "compile", compile)
    torch.set_num_threads(1)
    return found


def run(name: str, levels: dict[str, LevelValue], folder: Path, iterations: int = 2) -> None:
    config, small = WORKLOADS[name]
    cls, made = registry.find(name), load_workload({"name": name, **config})[1]
    chosen = Space(cls.toggles, made, HERE).closure({**small, **graphed(cls), **levels})
    (folder / "scratch").mkdir()
    workload = cls.configured(made)()
    workload.setup(made, chosen, Context(HERE, folder / "scratch", folder))
    try:
        for _ in range(iterations):
            workload.step(NullClock())
    finally:
        workload.close()


@pytest.mark.parametrize("name", WORKLOADS)
def test_no_two_levels_together_make_graphed_code_wait(watch: HostSyncs, tmp_path: Path, name: str) -> None:
    """Every legal pair of levels occurs in one of few arms."""
    config, small = WORKLOADS[name]
    cls, made = load_workload({"name": name, **config})
    space = Space(cls.toggles, made, HERE)
    waiting = {}
    for number, arm in enumerate(covering(space, {**small, **graphed(cls)}, admitted(name))):
        watch.found.clear()
        (tmp_path / f"{number}").mkdir()
        run(name, arm, tmp_path / f"{number}")
        if watch.found:
            waiting[space.label(arm)] = sorted(set(watch.found))
    assert waiting == {}


def test_a_planted_wait_is_found(watch: HostSyncs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    linear = torch.nn.functional.linear

    def reading(x: torch.Tensor, *rest: Any) -> torch.Tensor:
        x.sum().item()
        return linear(x, *rest)

    monkeypatch.setattr(torch.nn.functional, "linear", reading)
    run("digits", {}, tmp_path)
    assert any("_local_scalar_dense in test_graphed_code.py" in found for found in watch.found)
