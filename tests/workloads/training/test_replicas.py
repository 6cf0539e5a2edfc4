"""Two processes over gloo that share every batch train as one process does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import replicated
import torch
from tiny import Train
from torch import nn

from workloads.api import Context, Device
from workloads.errors import ConfigError
from workloads.training.replicas import own_device, replicas_of
from workloads.training.toggles import ON_REQUEST, shared_toggles

EXACT = {"losses": 1e-6, "first_gradient": 1e-6, "parameters": 1e-6}
"""float32, with the sums of two ranks in another order."""
HALF = dict.fromkeys(EXACT, 1e-3)
"""fp16 rounds to 11 significant bits, and other rows are summed together."""


@pytest.fixture(scope="module")
def of_two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two ranks found, by case."""
    folder = tmp_path_factory.mktemp("ranks")
    paths = [str(Path(__file__).parents[2] / "support"), *sys.path]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, str(replicated.__file__), str(folder)]
    ranks = [subprocess.Popen([*command, str(rank), "2"], env=env) for rank in range(2)]
    try:
        assert [rank.wait(timeout=300) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()
    return [torch.load(folder / str(rank) / "found.pt", weights_only=False) for rank in range(2)]


def distances(found: dict[str, Any], alone: dict[str, Any]) -> dict[str, float]:
    return {name: float((found[name] - alone[name]).norm() / alone[name].norm()) for name in EXACT}


def too_far(found: dict[str, Any], alone: dict[str, Any], bounds: dict[str, float]) -> list[str]:
    return [name for name, distance in distances(found, alone).items() if not distance <= bounds[name]]


@pytest.mark.workloads
@pytest.mark.parametrize("case", [case for case in replicated.CASES if case != "no exchange"])
def test_two_ranks_train_as_one_process(of_two: Any, case: str, tmp_path: Path) -> None:
    alone, bounds = replicated.results(case, tmp_path), HALF if case == "scaled" else EXACT
    for found in (ranks[case] for ranks in of_two):
        assert too_far(found, alone, bounds) == []
        assert found["progress"] == alone["progress"]
        assert found["numbers"]["last_loss"] == pytest.approx(alone["numbers"]["last_loss"], rel=1e-3)
        assert found["counters"]["ranks"] == 2 * alone["counters"]["ranks"] == 10
    parted = [ranks[case]["logged"] for ranks in of_two]
    assert sum(parted) == pytest.approx(alone["logged"], rel=1e-3)  # what each contributes to the mean


@pytest.mark.workloads
def test_ranks_that_exchange_no_gradients_are_rejected(of_two: Any, tmp_path: Path) -> None:
    alone = replicated.results("no exchange", tmp_path)
    for found in (ranks["no exchange"] for ranks in of_two):
        assert "parameters" in too_far(found, alone, EXACT)
        assert found["counters"]["ranks"] == 0


@pytest.mark.workloads
def test_rank_0_alone_writes_checkpoints(of_two: Any) -> None:
    # two in the loop, after the second and fourth iteration, and the one of the evidence
    assert [ranks["all together"]["counters"]["checkpoint_writes"] for ranks in of_two] == [3, 1]


def test_ranks_share_a_training_only_on_request() -> None:
    assert "ddp" in ON_REQUEST
    assert "ddp" not in [toggle.name for toggle in shared_toggles()]
    (ddp,) = shared_toggles("ddp")
    on = ddp.level("on")
    assert [on.processes(Device(type="cuda", count=count)) for count in (2, 8)] == [2, 8]
    assert (on.processes(Device()), ddp.levels[0].processes(Device())) == (2, 1)
    assert "two GPUs" in (on.unsupported(Device(type="cuda", count=1)) or "")
    assert on.unsupported(Device()) is None


def test_one_process_cannot_share(train: Train) -> None:
    with pytest.raises(ConfigError, match=r"ddp=on needs two ranks"):
        train(ddp="on")


def test_each_rank_has_a_gpu_of_its_own(tmp_path: Path) -> None:
    gpus = Device(type="cuda", count=4)
    contexts = [Context(gpus, tmp_path, tmp_path, rank=4 + i, world=8, local_rank=i) for i in range(4)]
    assert [own_device(context).index for context in contexts] == [0, 1, 2, 3]
    assert own_device(Context(gpus, tmp_path, tmp_path)).index is None


def test_a_process_that_is_alone_runs_the_model_itself(tmp_path: Path) -> None:
    model, alone = nn.Linear(1, 1), replicas_of("off", Context(Device(), tmp_path, tmp_path))
    assert alone.wrap(model, torch.device("cpu")) is model
