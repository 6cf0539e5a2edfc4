"""Single iterations from the reference's states name the iteration and tensor in which an arm parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from measured import prepared
from torch import nn

from perfsweep.pipelines.config.types import (
    ClusterConfig,
    DesignConfig,
    MeasureConfig,
    SweepCommand,
    SweepConfig,
)
from perfsweep.pipelines.execution.pack import PackRun
from perfsweep.pipelines.parity import deviations, evidence
from perfsweep.pipelines.parity.evidence import Agreement
from perfsweep.pipelines.parity.results import ParityResult, ParityVerdict
from perfsweep.pipelines.store.records import Kind, read_evidence
from perfsweep.pipelines.trial import untimed
from perfsweep.workloads.api import REPLAY, Evidence, Parity, Replayable

ITERATIONS = 8


class Net:
    """A small training with noise in its inputs; `spoil` may change gradients before the update."""

    def __init__(
        self, spoil: Callable[[int, nn.Module], None] = lambda step, net: None, **options: Any
    ) -> None:
        torch.manual_seed(1)
        self.net = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 2))
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=0.01, **options)
        self.number = 0
        self._spoil = spoil

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.net(torch.randn(16, 5)).square().mean().backward()
        self._spoil(self.number, self.net)
        self.optimizer.step()
        self.number += 1

    def state(self) -> dict[str, Any]:
        return {"net": self.net.state_dict(), "optimizer": self.optimizer.state_dict(), "number": self.number}

    def load(self, state: Mapping[str, Any]) -> None:
        self.net.load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.number = state["number"]

    @property
    def training(self) -> Replayable:
        return Replayable(dict(self.net.named_parameters()), self.optimizer, self.state, self.load)


@pytest.fixture
def recorded(tmp_path: Path) -> tuple[Evidence, Path]:
    net = Net()
    return untimed.keep_states(net.training, ITERATIONS, net.step, tmp_path), tmp_path


def judged(reference: Evidence, arm: Evidence) -> ParityResult:
    def arrays(evidence: Evidence) -> Evidence:
        return Evidence(
            {name: tensor.numpy() for name, tensor in evidence.tensors.items()}, {}, evidence.parts
        )

    return deviations.judge(arrays(reference), arrays(arm), [REPLAY], Parity.EXACT, {})


def test_the_iteration_and_the_tensor_in_which_an_arm_parts_are_named(recorded) -> None:
    reference, folder = recorded

    def spoil(step: int, net: nn.Module) -> None:
        if step >= 3:
            net[2].weight.grad *= 1.001  # type: ignore[index]

    net = Net(spoil)
    result = judged(reference, untimed.replay(net.training, net.step, folder))
    assert result.verdict is ParityVerdict.DIFFERENT
    assert "replay/4: " in result.reason
    assert "worst in 2.weight" in result.reason
    assert [d.ok for d in result.deviations] == [True, True, False, False]


class Counting(torch.optim.Optimizer):
    """Counts its steps as a number, or as a tensor where it is fused, as optimizers do."""

    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                fused = group["fused"]
                count = state.get("step", torch.zeros(()) if fused else 0)
                assert isinstance(count, torch.Tensor) is fused
                state["step"] = count + 1


@pytest.mark.parametrize("fused", [False, True])
def test_an_arms_optimizer_keeps_its_own_options_and_reads_its_own_kind_of_count(
    tmp_path: Path, fused: bool
) -> None:
    nets = [Net(), Net()]
    for net, own in zip(nets, (False, fused), strict=True):
        net.optimizer = Counting(net.net.parameters(), {"fused": own})
    untimed.keep_states(nets[0].training, ITERATIONS, nets[0].step, tmp_path)
    untimed.replay(nets[1].training, nets[1].step, tmp_path)
    counts = [nets[1].optimizer.state[parameter]["step"] for parameter in nets[1].net.parameters()]
    assert counts == [ITERATIONS] * 4
    assert nets[1].optimizer.param_groups[0]["fused"] is fused


def test_a_training_of_other_parameters_is_not_replayed(recorded) -> None:
    reference, folder = recorded
    net = Net()
    other = Replayable({"all": next(net.net.parameters())}, net.optimizer, net.state, net.load)
    found = untimed.replay(other, net.step, folder)
    assert not evidence.replayed(found)
    assert not evidence.replayed(evidence.comparable(reference, found))


def test_an_iteration_without_an_update_has_no_entry(recorded) -> None:
    reference, folder = recorded
    net = Net()

    def step() -> None:
        if net.number != 1:
            net.step()

    found = untimed.replay(net.training, step, folder)
    assert sorted(found.tensors) == ["replay/0", "replay/4", "replay/7"]
    assert judged(evidence.comparable(reference, found), found).verdict is ParityVerdict.IDENTICAL  # type: ignore[arg-type]


def test_states_that_would_not_fit_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untimed, "LARGEST_BYTES", 100)
    net = Net()
    assert not evidence.replayed(untimed.keep_states(net.training, ITERATIONS, net.step, tmp_path))
    assert not list(tmp_path.iterdir())
    assert net.number == ITERATIONS


@pytest.mark.slow
def test_evidence_trials_of_a_sweep_replay_the_references_iterations(tmp_path: Path) -> None:
    command = SweepCommand(
        workload={"name": "digits", "width": 32, "depth": 1, "batch_size": 256},
        measure=MeasureConfig(evidence_iterations=6, timeout_s=120),
        cluster=ClusterConfig(executor="inprocess"),
        sweep=SweepConfig(
            name="replayed",
            designs=[DesignConfig("one_at_a_time", levels={"optimizer": ["foreach"], "amp": ["bf16"]})],
        ),
        runs=str(tmp_path),
    )
    folder, manifest = prepared(command)
    run = PackRun(folder, manifest, manifest.packs[0])
    for arm in sorted(manifest.arms, key=lambda arm: arm.label != "baseline"):
        run.support(arm, Kind.EVIDENCE)
    agreement = Agreement(manifest, run.progress, read_evidence)
    for effect in manifest.effects:
        result = agreement.of(effect)
        replays = [d for d in result.deviations if d.check.startswith("replay/")]
        assert [d.check for d in replays] == ["replay/0", "replay/1", "replay/3", "replay/5"], effect.level
        assert all(d.ok for d in replays), result
        # Rounding of one iteration, not what whole runs have piled up.
        low, high = (1e-4, 4e-2) if effect.toggle == "amp" else (0.0, 1e-6)
        assert all(low <= d.value <= high for d in replays), result


def test_the_same_training_replays_bit_for_bit_however_far_it_had_drifted(recorded) -> None:
    reference, folder = recorded
    net = Net()
    for _ in range(3):
        net.step()
    assert (
        judged(reference, untimed.replay(net.training, net.step, folder)).verdict is ParityVerdict.IDENTICAL
    )
