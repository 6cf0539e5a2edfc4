"""A small sweep as records on disk, without having measured anything."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from run_file import RunFile, read_run

from perfsweep.pipelines.publish.published import Published, warning
from perfsweep.pipelines.publish.runs import SweepRuns
from perfsweep.pipelines.publish.worker import publisher
from perfsweep.pipelines.store.files import read_arrays, write_arrays
from perfsweep.pipelines.store.options import MeasureConfig
from perfsweep.pipelines.store.records import (
    Arm,
    Failure,
    Kind,
    Manifest,
    Outcome,
    Pack,
    Sweep,
    SweepFolder,
    TrialRecord,
    TrialSpec,
    write_record,
    write_spec,
)
from perfsweep.pipelines.store.schema import Declared, DeclaredLevel

NAIVE = Arm(id="a" * 16, label="baseline", levels={"amp": "off", "slab_size": 1})
FAST = Arm(id="b" * 16, label="amp=bf16,slab_size=all", levels={"amp": "bf16", "slab_size": "all"})
PACK = Pack(id="p000", orders=((NAIVE.id, FAST.id), (FAST.id, NAIVE.id), (NAIVE.id, FAST.id)), start="fork")
MEASURE = MeasureConfig(
    rounds=3,
    iterations=7,
    jobs=1,
    warmup_max=9,
    evidence_iterations=1,
    counting_iterations=1,
    threads=1,
    timeout_s=9.0,
    seed=5,
)
DECLARED = {
    name: tuple(DeclaredLevel(value=arm.levels[name]) for arm in (NAIVE, FAST)) for name in NAIVE.levels
}
EPOCH_NS = 1_700_000_000_123_456_789
IDENTITY = "5eed00"
TIMED, WARM = 7, 3
"""Iterations of each trial of the sweep below."""


@dataclass(frozen=True)
class Built:
    """A sweep on disk."""

    folder: SweepFolder
    manifest: Manifest

    def spec(
        self, arm: Arm, number: int | None, kind: Kind = Kind.TIMING, attempt: int = 0, pack: str = "p000"
    ) -> TrialSpec:
        sweep = self.manifest.sweep
        return TrialSpec(
            sweep=sweep.name,
            workload=sweep.workload,
            config={},
            arm=arm,
            kind=kind,
            pack=pack,
            round=number,
            attempt=attempt,
            measure=MEASURE,
            code="c0de",
            cache_dir="",
        )

    def add(self, spec: TrialSpec, arrays: dict[str, np.ndarray] | None, **fields: Any) -> Path:
        path = self.folder.trial_dir(spec)
        write_spec(path, spec)
        own = {
            "arm": spec.arm.id,
            "kind": spec.kind,
            "pack": spec.pack,
            "round": spec.round,
            "attempt": spec.attempt,
        }
        write_record(
            path,
            TrialRecord(**{**own, "outcome": Outcome.OK, "code": "c0de", "method": MEASURE.method, **fields}),
        )
        if arrays is not None:
            write_arrays(path / "iterations.npz", arrays)
        return path

    def add_round(self, arm: Arm, number: int, **changes: Any) -> Path:
        fields = {
            "units": 70.0,
            "iterations": TIMED,
            "region_ns": 5_000_000 * (number + 1),
            "warmup_s": 0.5 + number,
        }
        fields |= {"peak_bytes": 2_000_000, "mfu": 0.1}
        facts = {
            "torch": "2.13.0",
            "driver": "570",
            "host": "n1",
            "cpu_features": ["avx2", "amx"],
            "slurm": {"job_id": "7"},
        }
        facts["gpus"] = [{"name": "H200", "uuid": "GPU-1"}]
        return self.add(
            self.spec(arm, number), arrays_of(arm, number), environment=facts, **{**fields, **changes}
        )

    def run_file(self, arm: Arm, pack: str = "p000") -> RunFile:
        return read_run(self.run_folder(arm, pack))

    def run_folder(self, arm: Arm, pack: str = "p000") -> Path:
        (path,) = self.folder.wandb_dir.glob(f"offline-run-*-{IDENTITY}-{arm.id}-{pack}")
        return path

    @property
    def produced(self) -> int:
        """Rows that the records hold: timed and warm-up iterations of all trials that ended well."""
        return sum(
            len(arrays["wall_ns"]) + len(arrays["warmup_wall_ns"])
            for arrays in map(read_arrays, self.folder.path.glob("trials/*/*/iterations.npz"))
        )


def arrays_of(arm: Arm, number: int) -> dict[str, np.ndarray]:
    """Arrays as a trial writes them, different for each arm and round."""
    rng = np.random.default_rng([ord(arm.id[0]), number])
    walls = rng.integers(400_000, 900_000, TIMED)
    loss = rng.normal(size=TIMED)
    loss[2] = np.nan  # nothing was logged in this iteration
    return {
        "start_ns": 10**12 + np.concatenate([[0], np.cumsum(walls[:-1] + 1_000)]),
        "wall_ns": walls,
        "device_ns": np.where(np.arange(TIMED) == 4, -1, walls - 100_000),  # one event could not be had
        "flags": np.zeros(TIMED, np.uint32),
        "host_forward": walls // 3,
        "device_forward": walls // 4,
        "warmup_wall_ns": rng.integers(10**6, 10**9, WARM),
        "epoch_ns": np.array([EPOCH_NS + number * 10**10]),
        "log_loss": loss,
        "log_lr@0": np.full(TIMED, 0.1),
    }


def build(path: Path, mode: str = "offline", packs: tuple[Pack, ...] = (PACK,), **tracking: Any) -> Built:
    """A sweep of two arms and three rounds; the last round of the fast arm ran out of memory."""
    sweep = Sweep(
        name="demo",
        workload="toys.spinner:Spinner",
        config={"width": 8, "sizes": [1, 2]},
        measure=MEASURE,
        code="c0de",
        references={"naive": NAIVE.id, "late": FAST.id},
        declared=Declared(unit="step", shape="steps", checks=(), levels=DECLARED),
        tracking={"mode": mode, "project": "speed", "entity": "team", "margin": 0.01, **tracking},
    )
    built = Built(SweepFolder(path), Manifest(sweep=sweep, arms=(NAIVE, FAST), effects=(), packs=packs))
    built.folder.write_manifest(built.manifest)
    built.folder.wandb_dir.mkdir()
    (built.folder.wandb_dir / "sweep.id").write_text(IDENTITY)
    for number in range(3):
        built.add_round(NAIVE, number)
    built.add_round(FAST, 0)
    built.add_round(FAST, 1, disturbed=("other load",))
    built.add(
        built.spec(FAST, 2), None, outcome=Outcome.OOM, failure=Failure(type="OutOfMemoryError", message="x")
    )
    built.add(built.spec(FAST, None, Kind.COUNTING), None, counters={"gemm_calls": 12.0, "cache_hits": None})
    return built


def timed_rows(run: RunFile) -> list[dict[str, Any]]:
    return [row for row in run.history if "iter/index" in row]


def snapshot(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in sorted(folder.rglob("*"))}


def publish_here(built: Built, packs: list[str] | None = None, server: str | None = None) -> Published:
    """Publish in this process, where a test can reach into wandb."""
    runs = SweepRuns(built.folder, built.folder.read_manifest())
    with publisher(runs, server) as ours:
        done = tuple(run for key in runs.keys(packs) if (run := ours.publish(key)))
    return Published(
        done, warning(done, list(dict.fromkeys(runs.problems))), "online" if server else "offline"
    )
