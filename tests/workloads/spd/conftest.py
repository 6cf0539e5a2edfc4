"""SPD trainings to look into: any levels, closed after the test; and a target small enough for all."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from perfsweep.pipelines.plan.arms import Space
from perfsweep.workloads.api import Context, Device, NullClock
from perfsweep.workloads.spd import library
from perfsweep.workloads.spd.config import SpdConfig
from perfsweep.workloads.spd.data import corpus
from perfsweep.workloads.spd.data.tokens import Rows
from perfsweep.workloads.spd.presets import PRESETS
from perfsweep.workloads.spd.reference import Reference
from perfsweep.workloads.spd.training import targets
from perfsweep.workloads.spd.training.targets import Given, Problem
from perfsweep.workloads.spd.variants import TOGGLES, arm
from perfsweep.workloads.spd.workload import Spd

HERE = Device(type="cpu", cores=2, compiler=True)

Start = Callable[..., Spd]
REAL_PRESETS = dict(PRESETS)


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Several threads only wait for one another on machines that others use too."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """`decompose` builds no kernels, which take longer than all that is tested with it."""
    monkeypatch.setattr(library, "compiler_here", lambda: None)


@pytest.fixture(autouse=True, scope="session")
def small_target() -> Iterator[None]:
    """The presets of tests with a target that is drawn instead of trained, on fewer tokens."""
    with pytest.MonkeyPatch.context() as patch:
        drawn = replace(
            PRESETS["lm_test"], target=replace(PRESETS["lm_test"].target, values="random"), warmup_steps=3
        )
        patch.setitem(PRESETS, "lm_test", drawn)
        patch.setitem(PRESETS, "tms_5-2_test", replace(PRESETS["tms_5-2_test"], warmup_steps=3))
        for module in (targets, corpus):
            patch.setattr(module, "TOKENS", 40_000)
            patch.setattr(module, "VECTORS", 2**13)
        yield


@pytest.fixture
def real_presets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The presets as users have them."""
    for name, recipe in REAL_PRESETS.items():
        monkeypatch.setitem(PRESETS, name, recipe)
    for module in (targets, corpus):
        monkeypatch.setattr(module, "VECTORS", 2**17)


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Corpora and trained targets of a whole session."""
    return tmp_path_factory.mktemp("spd")


@pytest.fixture
def start(cache_dir: Path, tmp_path: Path) -> Iterator[Start]:
    """Sets up a training: ``start(patching="wrapper", config={"losses": "all"}, log=rows.append)``.

    Levels that are not given follow from those that are.
    """
    running: list[Spd] = []
    numbers = itertools.count()

    def make(
        config: dict[str, Any] | None = None,
        kind: str = "timing",
        seed: int = 0,
        device: Device = HERE,
        log: Any = None,
        given: Given | None = None,
        **levels: Any,
    ) -> Spd:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        made = SpdConfig(**(config or {}))
        context = Context(
            device, scratch_dir=folder, cache_dir=cache_dir, seed=seed, log=log or (lambda row: None)
        )
        workload = Spd(given)
        running.append(workload)
        workload.setup(made, Space(Spd.toggles, made, device).closure(levels), context)
        if kind == "evidence":
            workload.prepare_evidence()
        return workload

    yield make
    for workload in running:
        workload.close()


@pytest.fixture
def arm_of(tmp_path: Path) -> Callable[..., Reference]:
    """An arm of a target that a test makes: ``arm_of(target, sites, rows, config, gc="rarely")``."""

    def make(target: Any, sites: Any, values: np.ndarray, config: dict[str, Any], **levels: Any) -> Reference:
        data = "vectors_path" if values.dtype == np.float32 else "tokens_path"
        made = SpdConfig(target="tests:One", warmup_steps=0, **{data: "given", "dtype": "float64"}, **config)
        chosen = {toggle.name: toggle.levels[0].value for toggle in TOGGLES} | levels
        given = Rows(values, "")
        problem = Problem(target, made.recipe.target, tuple(sites), given, given)
        return arm(chosen)(chosen, made, Context(HERE, tmp_path, tmp_path), problem, ExitStack())

    return make


class Network(nn.Module):
    """Somebody's network: an embedding, two linear layers and a head; what it returns has parts."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(VOCAB, 6)
        self.body = nn.Sequential(nn.Linear(6, 10), nn.GELU(), nn.Linear(10, 6, bias=False))
        self.out = nn.Linear(6, VOCAB)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        h = self.embed(tokens)
        return self.out(h + self.body(h))


VOCAB = 12


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture(scope="session")
def tokens() -> np.ndarray:
    """Rows [n, S] of token ids for `network`."""
    return np.random.default_rng(0).integers(0, VOCAB, (300, 5))


@pytest.fixture
def run() -> Callable[[Spd, int], None]:
    """Does some iterations."""

    def iterate(workload: Spd, iterations: int) -> None:
        for _ in range(iterations):
            workload.step(NullClock())

    return iterate


@pytest.fixture
def gradients_of(start: Start) -> Callable[..., dict[str, torch.Tensor]]:
    """Total, terms, all gradients of the first batch with searches: ``gradients_of(delta="folded")``."""

    def compute(**arm: Any) -> dict[str, torch.Tensor]:
        workload = start(**arm)
        training = workload.arm
        training.updates.zero()
        training.schedule()
        with workload._products:
            terms, _ = training.gradients(workload.arm.first_batch(), NullClock())
        found = {"total": training.total, **terms, **training.decomposition.named_gradients()}
        return {name: value.detach().double().cpu() for name, value in found.items()}

    return compute
