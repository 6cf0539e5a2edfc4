"""A user's own training: every shared toggle of the loop acts, keeps to its class, and a few lines do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import INPUTS, Train
from torch import nn
from torch.utils.data import TensorDataset

from perfsweep.pipelines.parity import deviations
from perfsweep.pipelines.parity.results import ParityResult, ParityVerdict, loosest
from perfsweep.pipelines.trial.compiles import CompileCounting
from perfsweep.pipelines.trial.counters import Counting
from perfsweep.workloads.api import Context, Device, Evidence, Level, Levels, NullClock, Toggle
from perfsweep.workloads.errors import ConfigError, ContractError
from perfsweep.workloads.training import Parts, Training, shared_toggles
from perfsweep.workloads.training.toggles import CHECKS, NAMES, SAVED

ROWS = 70


@dataclass
class Config:
    """A regression of eight numbers."""

    batch_size: int = 24
    width: int = 8


class Small(Training):
    """Two blocks and a head."""

    Config = Config
    toggles = (*shared_toggles(*NAMES), Toggle("wide", (Level("no"), Level("yes")), "a toggle of its own"))
    checks = (*CHECKS, SAVED)

    def build(self, config: Config, levels: Levels, context: Context) -> Parts:
        generator = torch.Generator().manual_seed(1)
        inputs = torch.randn(ROWS, 8, generator=generator)
        depth = 2 if levels["wide"] == "yes" else 1
        blocks = [
            nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 8), nn.Tanh()) for _ in range(depth)
        ]
        model = nn.Sequential(*blocks, nn.Linear(8, 1))
        return Parts(
            model=model,
            data=TensorDataset(inputs, inputs.sum(dim=1, keepdim=True)),
            loss=lambda model, x, y: nn.functional.mse_loss(model(x), y),
            optimizer=lambda parameters, **how: torch.optim.AdamW(parameters, lr=1e-2, **how),
            blocks=blocks,
            held_out=TensorDataset(inputs[:5], inputs[:5].sum(dim=1, keepdim=True)),
            evaluate=lambda model, x, y: {"error": nn.functional.mse_loss(model(x), y).item()},
            evaluate_every=3,
            save_every=3,
        )


BASELINE = {toggle.name: toggle.levels[0].value for toggle in Small.toggles}


Start = Callable[..., Small]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    running: list[Small] = []

    def make(
        kind: str = "evidence", steps: int = 0, config: Config | None = None, log: Any = None, **levels: Any
    ) -> Small:
        facts = Device(cores=2, compiler=True)
        scratch_dir = tmp_path / str(len(running))
        scratch_dir.mkdir()
        context = Context(facts, scratch_dir=scratch_dir, cache_dir=tmp_path, log=log or (lambda row: None))
        workload = Small()
        running.append(workload)
        workload.setup(config or Config(), {**BASELINE, **levels}, context)
        if kind == "evidence":
            workload.prepare_evidence()
        for _ in range(steps):
            workload.step(NullClock())
        return workload

    yield make
    for workload in running:
        workload.close()


def verdict(reference: Evidence, arm: Evidence, **levels: Any) -> ParityResult:
    chosen = [toggle.level(levels[toggle.name]) for toggle in Small.toggles if toggle.name in levels]
    parity, bounds = loosest(chosen, Small.checks)
    return deviations.judge(reference, arm, Small.checks, parity, bounds)


ACTING = [
    {"amp": "bf16"},
    {"num_workers": 2},
    {"micro_batch": 16},
    {"optimizer": "foreach"},
    {"optimizer": "fused"},
    {"zero_grad": "none"},
    {"grad_checkpointing": "on"},
    {"gc": "rarely"},
    {"gc": "frozen"},
    {"checkpoint": "async"},
]


def counters(workload: Small) -> dict[str, float | None]:
    with Counting() as counting:
        workload.step(NullClock())
    return {**workload.counters(), **counting.result()}


@pytest.mark.parametrize("levels", ACTING, ids=str)
def test_a_level_moves_its_witness_and_keeps_to_its_class(start: Start, levels: dict[str, Any]) -> None:
    reference, arm = start(steps=12), start(steps=12, **levels)
    found = verdict(reference.evidence(), arm.evidence(), **levels)
    assert found.verdict in (ParityVerdict.IDENTICAL, ParityVerdict.WITHIN_TOLERANCE), found.reason
    ((name, value),) = levels.items()
    witness = next(toggle for toggle in Small.toggles if toggle.name == name).level(value).witness
    assert witness is not None
    before, after = (
        counters(start(kind="counting", steps=2)),
        counters(start(kind="counting", steps=2, **levels)),
    )
    assert before[witness] != after[witness]


@pytest.mark.workloads
def test_a_compiled_model_is_compiled_once_and_computes_the_same(
    start: Start, no_generated_code: None
) -> None:
    reference = start(steps=3).evidence()
    with CompileCounting() as compiling:
        arm = start(steps=3, compile="default").evidence()
    assert compiling.result()["compiled_graphs"] == 1
    assert verdict(reference, arm, compile="default").verdict is not ParityVerdict.DIFFERENT


@pytest.mark.parametrize("whole", [False, True])
def test_compiled_code_must_be_one_graph_where_a_training_says_so(
    train: Train, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(torch, "compile", lambda model, fullgraph, **how: asked.append(fullgraph))
    train({"fullgraph": whole}, compile="default")
    assert asked == [whole]


@pytest.mark.workloads
def test_a_mean_over_pieces_would_be_rejected(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """24 rows in pieces of 16 and 8: the mutant weighs both alike."""
    reference = start(steps=12).evidence()

    def mean_of_means(self: Small, batch: Any, clock: Any) -> torch.Tensor:
        losses = []
        for piece in self._pieces(batch):
            loss = self._parts.loss(self._forward, *piece) / 2
            loss.backward()
            losses.append(loss.detach())
        return sum(losses[1:], start=losses[0])

    assert (
        verdict(reference, start(steps=12, micro_batch=16).evidence(), micro_batch=16).verdict.value
        == "within tolerance"
    )
    monkeypatch.setattr(Small, "_forward_backward", mean_of_means)
    assert (
        verdict(reference, start(steps=12, micro_batch=16).evidence(), micro_batch=16).verdict.value
        == "different"
    )


def test_a_toggle_of_ones_own_reaches_build(start: Start) -> None:
    assert len(list(start(wide="yes").model.parameters())) > len(list(start().model.parameters()))


def test_training_lowers_the_loss_and_counts_examples(start: Start) -> None:
    rows: list[Any] = []
    # With each_eval every evaluation would visit torch's 300,000 objects.
    workload = start(kind="timing", steps=60, log=rows.append, gc="frozen")
    assert workload.progress() == 60 * 24
    assert rows[-1]["loss"] < 0.5 * rows[0]["loss"]
    assert set(workload.numbers()) == {"last_loss", "error"}
    assert set(workload.evidence().numbers) == {"examples", "checkpoint_error"}


def test_settings_of_the_process_are_put_back(start: Start) -> None:
    before = torch.get_float32_matmul_precision()
    workload = start(tf32="on")
    assert torch.get_float32_matmul_precision() == "high"
    workload.close()
    assert torch.get_float32_matmul_precision() == before


@pytest.mark.parametrize(
    ("toggle", "level", "part"),
    [
        ("grad_checkpointing", "on", "blocks"),
        ("gc", "rarely", "evaluate_every"),
        ("checkpoint", "async", "save_every"),
    ],
)
def test_a_level_that_acts_on_a_missing_part_is_refused(
    train: Train, toggle: str, level: str, part: str
) -> None:
    with pytest.raises(ConfigError, match=rf"{toggle}={level} .*Parts\({part}=\.\.\.\)"):
        train(**{toggle: level})


def test_a_training_without_batch_size_or_build_is_refused_when_its_class_is_made() -> None:
    @dataclass
    class Bare:
        width: int = 1

    with pytest.raises(ContractError, match="Config needs a field batch_size"):
        type("Unsized", (Training,), {"Config": Bare, "build": Small.build})
    with pytest.raises(ContractError, match=r"build\(\) is missing"):
        type("Unbuilt", (Training,), {"Config": Config})


@pytest.mark.parametrize(
    ("names", "own", "message"),
    [
        (("ampp", "gcc"), {}, f"Training does not know the toggle ampp; it knows: {', '.join(NAMES)}"),
        (
            ("amp",),
            {"tf32": {}, "gc": {}},
            "shared_toggles changes tf32 and does not list it; add it to the names",
        ),
    ],
)
def test_unknown_shared_toggles_are_refused(names: Any, own: Any, message: str) -> None:
    with pytest.raises(ContractError, match=f"^{message}$"):
        shared_toggles(*names, **own)


def test_rows_may_be_single_tensors(train: Train) -> None:
    alone = {"data": list(INPUTS), "loss": lambda model, x: model(x).square().mean()}
    assert train(alone, steps=2).progress() == 48
