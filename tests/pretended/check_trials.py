"""Trials of every workload on a pretended GPU: timed, counted, and held against what the host computes.

Run by `tests/workloads/test_pretended_gpu.py`, in a process that loads the GPU before torch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pretend_cuda.graphs import compiled

from perfsweep.pipelines.plan.arms import Space
from perfsweep.pipelines.plan.plan import load_workload
from perfsweep.pipelines.store.options import MeasureConfig
from perfsweep.pipelines.store.records import read_evidence, read_iterations
from perfsweep.pipelines.store.trial_schema import Arm, Kind, TrialSpec
from perfsweep.pipelines.trial.process import MEASURE
from perfsweep.pipelines.trial.step_logging import BufferedLog
from perfsweep.pipelines.trial.timing import steady
from perfsweep.workloads import registry
from perfsweep.workloads.api import Context, Device, Evidence, LevelValue
from perfsweep.workloads.errors import UnsupportedHere
from perfsweep.workloads.probe1d.data import generator
from perfsweep.workloads.spd.data import corpus
from perfsweep.workloads.spd.training import targets

pytestmark = pytest.mark.workloads

GPU = Device("cuda", 1, "NVIDIA H100 80GB HBM3", 80 * 2**30, (9, 0), 2, True)
HOST = Device(cores=2, compiler=True)
BRIEF = MeasureConfig(iterations=2, warmup_max=5, evidence_iterations=3, counting_iterations=3)

Levels = dict[str, LevelValue]


@dataclass(frozen=True)
class Case:
    """A workload at the size of its tests, the arm that others are like, and the one that replays graphs.

    `more` are other levels, those that only a GPU has above all. `near` is how far these may lie on the
    device from those of the host, relative to their size.
    """

    config: dict[str, Any] = field(default_factory=dict)
    base: Levels = field(default_factory=dict)
    graphed: Levels | None = None
    more: tuple[Levels, ...] = ()
    near: float = 1e-6


UNWAITED: Levels = {"pin_memory": "on", "non_blocking": "on", "prefetch": "stream"}
LATENTWIRE = {"preset": "test", "tokenizer": "bytes", "max_prompt": 200, "data_n": 16, "held_out": 4}
CASES = {
    "digits": Case(
        {"width": 4, "train_fraction": 0.15, "eval_every": 1, "checkpoint_every": 1},
        base={"zero_grad": "none"},
        graphed={"compile": "reduce_overhead"},
        more=({"pin_memory": "on", "checkpoint": "async"}, {**UNWAITED, "optimizer": "fused"}),
    ),
    "prover": Case(
        {"queries": 1, "corruptions": 2},
        {"slab_size": 8, "pad_to_slab": "done_row", "warmup": "exact", "early_exit_all": "sync"},
        {"compile": "reduce_overhead"},
        ({"early_exit_all": "async_lag1"},),
    ),
    "latentwire": Case(
        {**LATENTWIRE, "eval_rows": 2, "max_new": 4, "log_every": 2},
        {"effective_batch": 4, "micro_batch": 4, "passes": "merged"},
        {"compile": "reduce_overhead"},
        (
            {**UNWAITED, "empty_cache": "step"},
            {"resident_data": "on", "loader": "resident_index", "sync": "late"},
        ),
    ),
    "probe1d": Case(
        {"max_iter": 4},
        more=({"solver": "newton", "label_free": "on", "csc_layout": "on", "slab_size": "all"},),
    ),
    "spd": Case(
        {"preset": "tms_5-2_test", "batch_size": 64, "log_every": 4, "eval_every": 4, "save_every": 4},
        {"metrics": "deferred", "mask_checks": "off", "optimizer": "fused"},
        {"cuda_graph": "on"},
    ),
}
ARMS = [
    pytest.param(name, levels, id=f"{name}-{'-'.join(levels) or 'base'}")
    for name, case in CASES.items()
    for levels in (case.graphed, *(case.more or ({},)))
    if levels is not None
]
TIMED = [
    pytest.param(name, {} if case.graphed is None else case.graphed, id=name) for name, case in CASES.items()
]


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short warm-ups, few rows, and compiled code as it is written."""
    torch.set_num_threads(1)
    monkeypatch.setattr(steady, "DEVICE_WARM_NS", 0)
    monkeypatch.setattr(torch, "compile", compiled)
    # Data are drawn by the generator of their device: the host's are to be those of the pretended one.
    monkeypatch.setattr(generator, "_sample_numpy", generator._sample_torch)
    for module in (targets, corpus):
        monkeypatch.setattr(module, "VECTORS", 2**10)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def trial(
    kind: Kind,
    name: str,
    levels: Levels,
    folder: Path,
    cache: Path,
    device: Device = GPU,
    more: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Fields of the record of one trial, whose files lie in `folder`."""
    case = CASES.get(name, Case())
    cls, config = load_workload({"name": name, **case.config, **(more or {})})
    chosen = Space(cls.toggles, config, device).closure({**case.base, **levels})
    arm = Arm(id="arm", label="arm", levels=chosen)
    said = {"sweep": "pretended", "workload": name, "config": {}, "pack": "p000", "round": 0, "attempt": 0}
    spec = TrialSpec(**said, arm=arm, kind=kind, measure=BRIEF, code="", cache_dir=str(cache))
    scratch = folder / "scratch"
    scratch.mkdir(parents=True)
    torch.manual_seed(0)
    workload, log = registry.find(name).configured(config)(), BufferedLog()
    try:
        workload.setup(config, chosen, Context(device, scratch, cache, log=log))
        return MEASURE[kind](workload, spec, folder, device, log)
    finally:
        workload.close()


@pytest.mark.parametrize("kind", [Kind.TIMING, Kind.COUNTING])
def test_a_script_that_computes_there_is_not_timed_by_the_host_s_clock(
    tmp_path: Path, cache: Path, kind: Kind
) -> None:
    """As where torch sees a GPU and NVML does not: a container without the driver's tools, or ROCm."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    where = {"path": str(script), "folder": str(tmp_path)}
    with pytest.raises(UnsupportedHere, match=r"computes on cuda:0 \(.* MB\), which perfsweep cannot time"):
        trial(kind, "script", {}, tmp_path / "refused", cache, HOST, where)
    if kind is Kind.TIMING:
        assert trial(kind, "script", {}, tmp_path / "timed", cache, GPU, where)["units"] > 0


SCRIPT = """
import torch
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(100000):
    x = torch.randn(32, 64, device="cuda")
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
"""


def on_host(name: str, levels: Levels) -> Levels:
    """The levels where all of them act on the host too, else those of the base."""
    chosen = registry.find(name).levels_of(levels).values()
    return {} if any(level.unsupported(HOST) for level in chosen) else levels


def deviations(arm: Evidence, reference: Evidence) -> dict[str, float]:
    """Relative distance of each tensor."""
    assert arm.tensors.keys() == reference.tensors.keys()
    return {name: distance(arm.tensors[name], reference.tensors[name]) for name in arm.tensors}


def distance(one: np.ndarray, other: np.ndarray) -> float:
    """Norm of the difference by that of `other`; 0 where both are the same, infinities included."""
    left, right = np.asarray(one, float), np.asarray(other, float)
    difference = np.where((left == right) | (np.isnan(left) & np.isnan(right)), 0.0, left - right)
    return float(np.linalg.norm(difference) / (np.linalg.norm(right[np.isfinite(right)]) or 1.0))


@pytest.mark.parametrize(("name", "levels"), TIMED)
def test_an_arm_is_timed_there_by_its_device(name: str, levels: Levels, tmp_path: Path, cache: Path) -> None:
    found = trial(Kind.TIMING, name, levels, tmp_path, cache)
    assert found["units"] > 0 and found["region_ns"] > 0
    arrays = read_iterations(tmp_path)
    assert len(arrays["device_ns"]) == found["iterations"]


@pytest.mark.parametrize(("name", "levels"), ARMS)
def test_it_computes_there_what_its_base_computes_on_the_host(
    name: str, levels: Levels, tmp_path: Path, cache: Path
) -> None:
    trial(Kind.EVIDENCE, name, levels, tmp_path, cache)
    host = cache / f"{name}-{on_host(name, levels)}"
    if not host.exists():
        trial(Kind.EVIDENCE, name, on_host(name, levels), host, cache, HOST)
    there, here = (read_evidence(folder) for folder in (tmp_path, host))
    far = {what: far for what, far in deviations(there, here).items() if not far <= CASES[name].near}
    assert far == {}
    assert there.tensors


def test_a_graph_counts_what_its_replays_compute(tmp_path: Path, cache: Path) -> None:
    """Operators ran when it was captured; what is counted is what an iteration computes."""
    eager, graph = (
        trial(Kind.COUNTING, "spd", {"cuda_graph": level}, tmp_path / level, cache)["counters"]
        for level in ("off", "on")
    )
    assert graph["graph_replays"] > 0 == eager["graph_replays"]
    same = ("flops", "masked_passes", "masked_modules", "pgd_passes", "iterations")
    assert {name: graph[name] for name in same} == {name: eager[name] for name in same}
    assert all(eager[name] > 0 for name in same)
    # A graph reads the exponent from a tensor, which takes some operators more.
    for name in ("ops", "saved_bytes"):
        assert graph[name] == pytest.approx(eager[name], rel=0.05)
