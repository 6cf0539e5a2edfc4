"""Processes over gloo that share every batch, or have one each, train as one does on the same rows."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import replicated
import torch
import torch.distributed as dist
from tiny import BASELINE, Tiny, TinyConfig, Train

from perfsweep.pipelines.plan.arms import Space
from perfsweep.workloads.api import Context, Device
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.training import Parts
from perfsweep.workloads.training.replicas import own_device, replicas_of
from perfsweep.workloads.training.toggles import ON_REQUEST, shared_toggles

EXACT = {"losses": 1e-6, "first_gradient": 1e-6, "parameters": 1e-6}
"""float32, with the sums of two ranks in another order."""
HALF = dict.fromkeys(EXACT, 1e-3)
"""fp16 rounds to 11 significant bits, and other rows are summed together."""

PARTS: Any = (torch.nn.Linear(1, 1), range(70), torch.nn.functional.mse_loss)


@pytest.fixture(scope="module")
def of_two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two ranks found, by case."""
    folder = tmp_path_factory.mktemp("ranks")
    paths = [str(Path(__file__).parents[2] / "support"), *sys.path]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, str(replicated.__file__), str(folder)]
    started = [subprocess.Popen([*command, str(rank), "2", *replicated.CASES], env=env) for rank in range(2)]
    try:
        assert [rank.wait(timeout=300) for rank in started] == [0, 0]
    finally:
        for rank in started:
            rank.kill()
    return [torch.load(folder / str(rank) / "found.pt", weights_only=False) for rank in range(2)]


def distances(found: dict[str, Any], alone: dict[str, Any], names: Iterable[str] = EXACT) -> dict[str, float]:
    return {name: float((found[name] - alone[name]).norm() / alone[name].norm()) for name in names}


def too_far(found: dict[str, Any], alone: dict[str, Any], bounds: dict[str, float]) -> list[str]:
    return [
        name for name, distance in distances(found, alone, bounds).items() if not distance <= bounds[name]
    ]


@pytest.mark.workloads
@pytest.mark.parametrize("case", [case for case in replicated.CASES if case != "no exchange"])
def test_two_ranks_train_as_one_process(of_two: Any, case: str, tmp_path: Path) -> None:
    """On the same rows: where each has a batch, on both of them at once."""
    alone, bounds = replicated.results(case, tmp_path), HALF if case == "scaled" else EXACT
    if case.startswith("a batch each"):
        bounds = {name: bound for name, bound in bounds.items() if name != "first_gradient"}  # of one batch
    for found in (ranks[case] for ranks in of_two):
        assert too_far(found, alone, bounds) == []
        assert found["progress"] == alone["progress"]
        assert found["numbers"]["last_loss"] == pytest.approx(alone["numbers"]["last_loss"], rel=1e-3)
        assert found["counters"]["ranks"] == 2 * alone["counters"]["ranks"]
    assert alone["counters"]["ranks"] == 5
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


def test_gradients_are_exchanged_and_ranks_counted_with_the_last_piece_alone(tmp_path: Path) -> None:
    """The second of two ranks, in a group of this process alone."""
    context = Context(Device(), tmp_path, tmp_path, rank=1, world=2)
    second, counts, losses = replicas_of({"ddp": 2}, context), Counter[str](), torch.tensor([1.0, 3.0])
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        replica = second.wrap(torch.nn.Linear(1, 1), torch.device("cpu"))
        found = []
        for last in (False, True):
            second.before_piece(last, counts)
            found.append((replica.require_backward_grad_sync, counts["ranks"]))
        whole = second.total(losses)
    finally:
        dist.destroy_process_group()
    assert found == [(False, 0), (True, 2)]
    assert torch.equal(whole, losses) and whole is not losses
    assert (second.scaled(losses).tolist(), second.writes) == ([2.0, 6.0], False)
    assert replicas_of({"ddp": 2}, dataclasses.replace(context, rank=0)).writes


def test_rows_of_a_batch_are_shared_or_grow_with_the_ranks(tmp_path: Path) -> None:
    context, parts = Context(Device(), tmp_path, tmp_path, world=2), Parts(*PARTS)
    rows = {name: replicas_of({name: "on"}, context).shared_rows(35, parts) for name in ("ddp", "ddp_weak")}
    assert rows == {"ddp": 35, "ddp_weak": 70}
    assert replicas_of({"ddp": "off"}, context).shared_rows(35, parts) == 35
    with pytest.raises(
        ConfigError, match="ddp_weak=2 needs 2 batches of 36 rows at once, and there are 70; use a smaller"
    ):
        replicas_of({"ddp_weak": 2}, context).shared_rows(36, parts)


def test_ranks_share_a_training_only_on_request() -> None:
    assert "ddp" in ON_REQUEST
    assert "ddp" not in [toggle.name for toggle in shared_toggles()]
    (ddp,) = shared_toggles("ddp")
    on = ddp.level("on")
    assert ddp.level(4).processes(Device()) == 4
    assert [on.processes(Device(type="cuda", count=count)) for count in (2, 8)] == [2, 8]
    assert (on.processes(Device()), ddp.levels[0].processes(Device())) == (2, 1)
    assert "two GPUs" in (on.unsupported(Device(type="cuda", count=1)) or "")
    assert on.unsupported(Device()) is None


@pytest.mark.parametrize(("toggle", "level"), [("ddp", "on"), ("ddp", 4), ("ddp_weak", 2)])
def test_one_process_cannot_share(train: Train, toggle: str, level: Any) -> None:
    with pytest.raises(ConfigError, match=f"{toggle}={level} needs two ranks"):
        train(**{toggle: level})


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"sampler": range(60)}, r"there are 60"),
        (
            {"loader": replicated.shuffled},
            r"the loader of Parts\(loader=...\) makes its own; use toggles.ddp",
        ),
    ],
)
def test_a_batch_for_each_rank_is_refused_where_there_are_none(
    fields: dict[str, Any], said: str, tmp_path: Path
) -> None:
    context = Context(Device(), tmp_path, tmp_path, rank=3, world=4)
    with pytest.raises(ConfigError, match=said):
        Tiny(fields).setup(TinyConfig(24), {**BASELINE, "ddp_weak": 4}, context)


def test_ranks_that_share_a_batch_have_none_each() -> None:
    space = Space(shared_toggles("ddp", "ddp_weak"))
    with pytest.raises(ConfigError, match="ddp=2 shares one batch among the ranks"):
        space.legal({"ddp": 2, "ddp_weak": 2})
    assert space.legal({"ddp_weak": 4}) == {"ddp": "off", "ddp_weak": 4}


def test_each_rank_has_a_gpu_of_its_own(tmp_path: Path) -> None:
    gpus = Device(type="cuda", count=4)
    contexts = [Context(gpus, tmp_path, tmp_path, rank=4 + i, world=8, local_rank=i) for i in range(4)]
    assert [own_device(context).index for context in contexts] == [0, 1, 2, 3]
    assert own_device(dataclasses.replace(contexts[0], local_rank=5)).index == 1
    assert own_device(Context(gpus, tmp_path, tmp_path)).index is None
    assert own_device(Context(Device(), tmp_path, tmp_path, world=2)) == torch.device("cpu")
