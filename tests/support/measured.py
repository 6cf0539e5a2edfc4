"""Sweeps whose times are known: planned by the shipped code, and written as if they had been measured."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from perfsweep.pipelines.analysis import collect, compare
from perfsweep.pipelines.analysis.baselines import Baseline
from perfsweep.pipelines.analysis.compare import Comparison
from perfsweep.pipelines.config.types import (
    ClusterConfig,
    DesignConfig,
    MeasureConfig,
    SweepCommand,
    SweepConfig,
)
from perfsweep.pipelines.execution import launch
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.store import files
from perfsweep.pipelines.store.records import (
    Failure,
    Kind,
    Manifest,
    Outcome,
    Pack,
    SweepFolder,
    TrialRecord,
    TrialSpec,
    write_evidence,
    write_iterations,
    write_record,
)
from perfsweep.pipelines.trial.machine import environment
from perfsweep.workloads.api import Device, Evidence, Levels

TimeOf = Callable[[Levels], float]


def spec_of(manifest: Manifest, arm: str, pack: str, number: int | None, kind: Kind) -> TrialSpec:
    sweep = manifest.sweep
    return TrialSpec(
        sweep=sweep.name,
        workload=sweep.workload,
        config=sweep.config,
        arm=manifest.arm(arm),
        kind=kind,
        pack=pack,
        round=number,
        attempt=0,
        measure=sweep.measure,
        code=sweep.code,
        cache_dir="",
    )


def write(folder: SweepFolder, spec: TrialSpec, **fields: object) -> None:
    trial = folder.trial_dir(spec)
    trial.mkdir(parents=True, exist_ok=True)
    facts = {
        "cpu_model": "Simulated",
        "cores": 2,
        "torch": "2.13.0",
        "python": "3.11",
        "cpu_features": ["avx2", "fma"],
    }
    fields = {"environment": facts, **fields}
    values = {
        "outcome": Outcome.OK,
        "units": 100.0,
        "iterations": 10,
        "keys": {"device": "fake"},
        "peak_bytes": 1000,
        **fields,
    }
    record = TrialRecord(
        arm=spec.arm.id,
        kind=spec.kind,
        pack=spec.pack,
        round=spec.round,
        attempt=0,
        code=spec.code,
        method=spec.measure.method,
        **values,
    )  # type: ignore[arg-type]
    write_record(trial, record)


def simulated(
    command: SweepCommand, time_of: TimeOf, *, drift: float = 0.3, noise: float = 0.004, iterations: int = 0
) -> tuple[SweepFolder, Manifest]:
    """A measured sweep on a machine whose speed wanders by `drift` from round to round.

    With `iterations` every timing trial has series of that length, as trials write them.
    """
    manifest = plan.make_plan(command, Device())
    folder = SweepFolder(Path(command.runs) / manifest.sweep.name)
    folder.write_manifest(manifest)
    rng = np.random.default_rng(7)
    for arm in manifest.arms:
        evidence = spec_of(manifest, arm.id, "p000", None, Kind.EVIDENCE)
        write(folder, evidence)
        write_evidence(folder.trial_dir(evidence), Evidence({"trace": np.ones(4)}, {"count": 4.0}))
    for pack in manifest.packs:
        for number, order in enumerate(pack.orders):
            speed = math.exp(drift * rng.standard_normal())
            for arm in order:
                seconds = time_of(manifest.arm(arm).levels) * speed * math.exp(noise * rng.standard_normal())
                spec = spec_of(manifest, arm, pack.id, number, Kind.TIMING)
                arrays = series(rng, seconds, iterations) if iterations else {}
                # Rounded one by one, iterations may take a little more than all of them, rounded.
                region_ns = int(arrays["wall_ns"].sum()) if arrays else round(seconds * 1e9)
                write(folder, spec, region_ns=region_ns, iterations=iterations or 10)
                if arrays:
                    write_iterations(folder.trial_dir(spec), arrays)
    return folder, manifest


def series(
    rng: np.random.Generator, seconds: float, iterations: int, warm: int = 20
) -> dict[str, np.ndarray]:
    """Arrays of one timing trial whose iterations take `seconds` together, with a slow start."""
    walls = np.exp(0.03 * rng.standard_normal(iterations))
    wall_ns = np.round(walls / walls.sum() * seconds * 1e9).astype(np.int64)
    first = float(wall_ns.mean()) * (1 + 20 * np.exp(-np.arange(warm) / 2))
    return {
        "start_ns": 10**12 + np.concatenate([[0], np.cumsum(wall_ns[:-1])]),
        "wall_ns": wall_ns,
        "flags": np.zeros(iterations, np.uint32),
        "host_forward": wall_ns // 3,
        "host_backward": wall_ns // 2,
        "warmup_wall_ns": first.astype(np.int64),
        "epoch_ns": np.array([1_700_000_000 * 10**9]),
    }


def prepared(command: SweepCommand, device: Device | None = None) -> tuple[SweepFolder, Manifest]:
    """A sweep that is planned, and its folder, in which nothing has run yet."""
    manifest = plan.make_plan(command, device or Device())
    folder = SweepFolder(Path(command.runs) / manifest.sweep.name)
    launch.prepare(folder, manifest, "")
    return folder, manifest


def compared(folder: SweepFolder, manifest: Manifest) -> Comparison:
    return compare.compare(folder, manifest, collect.collect(folder, manifest))


def cost(levels: Levels) -> float:
    """Twice the work takes twice as long; wrong signs cost 10 %, and 20 % more beside double work."""
    seconds = 2.0 if levels["work"] == "double" else 1.0
    if levels["sign"] == "wrong":
        seconds *= 1.1 * (1.2 if levels["work"] == "double" else 1.0)
    return seconds


EVERYTHING = (
    DesignConfig(
        "one_at_a_time",
        levels={"work": ["single"], "slab": [4], "idle": ["on"], "sign": ["wrong"], "half": ["on"]},
    ),
    DesignConfig("leave_one_out", best={"work": "single", "slab": 4}),
    DesignConfig(
        "factorial", levels={"work": ["double", "single"], "sign": ["right", "wrong"], "slab": [1, 8]}
    ),
    DesignConfig("ladder", levels={"slab": [1, 2, 4, 8, 16, 64]}),
)


def with_everything(runs: Path, rounds: int = 8, iterations: int = 60) -> tuple[SweepFolder, Manifest]:
    """A sweep of the toy with all a report can show: every kind of table and picture, and a size OOM."""
    measure = MeasureConfig(
        rounds=rounds, iterations=8, warmup_max=10, evidence_iterations=4, counting_iterations=2
    )
    command = SweepCommand(
        workload={"name": "toys.spinner:Spinner"},
        measure=measure,
        cluster=ClusterConfig(executor="inprocess"),
        sweep=SweepConfig(name="toy", designs=list(EVERYTHING), references={"naive": {}}),
        runs=str(runs),
    )
    share = {1: 1.0, 2: 0.9, 4: 0.8, 8: 0.75, 16: 0.74, 64: 0.9}
    folder, manifest = simulated(
        command, lambda levels: cost(levels) * share[int(levels["slab"])] / 1e3, iterations=iterations
    )
    for arm in manifest.arms:
        for record in (
            folder.path.glob(f"trials/{arm.id}/*-r*/record.json") if arm.levels["slab"] == 64 else ()
        ):
            change(
                record, outcome="oom", failure={"type": "OutOfMemoryError", "message": "CUDA out of memory"}
            )
    return folder, manifest


def with_many_arms(runs: Path, arms: int = 60, rounds: int = 10) -> tuple[SweepFolder, Manifest]:
    """A sweep of many arms, with long names, compiling, CPU time, and one that fails with a long message."""
    sizes = range(2, 1 + arms // 2)
    together = {
        f"everything_at_once_with_slab_{n}": {"slab": n, "work": "single", "half": "on"} for n in sizes
    }
    designs = [
        DesignConfig("one_at_a_time", levels={"slab": list(sizes)}),
        DesignConfig("arms", arms=together),
    ]
    command = SweepCommand(
        workload={"name": "toys.spinner:Spinner"},
        measure=MeasureConfig(rounds=rounds, iterations=8, warmup_max=10),
        cluster=ClusterConfig(executor="inprocess"),
        sweep=SweepConfig(name="many", designs=designs, references={"naive": {}}),
        runs=str(runs),
    )
    folder, manifest = simulated(
        command, lambda levels: cost(levels) * (1 + int(levels["slab"]) / arms) / 1e3, iterations=60
    )
    for number, arm in enumerate(manifest.arms):
        counters = {"compile_s": 17.25 + number, "products": 40.0 + number}
        write(folder, spec_of(manifest, arm.id, "p000", None, Kind.COUNTING), counters=counters)
        for record in folder.path.glob(f"trials/{arm.id}/*-r*/record.json"):
            took = json.loads(record.read_text())["region_ns"]
            warm = {"compile_s": 2.5}
            change(record, region_cpu_ns=round(took * 0.9), peak_bytes=(number + 1) * 2**26, counters=warm)
    message = "mat1 and mat2 shapes cannot be multiplied (64x1024 and 512x10) " * 3
    for record in folder.path.glob(f"trials/{manifest.arms[-1].id}/*-r*/record.json"):
        change(record, outcome="failed", failure={"type": "RuntimeError", "message": message})
    return folder, manifest


def change(record: Path, **fields: object) -> None:
    """Change some fields of a record that is there, as if it had been written so."""
    record.write_bytes(files.json_object({**(files.read_json(record) or {}), **fields}))


class SimulatedLaunch:
    """Stands where packs are started, and writes what they would have measured on a machine that wanders.

    `cost_of` is the time of an arm, `peak_of` its memory, `compile_of` its seconds of compiling,
    `counters_of` what it counts, `wrong` says which arms compute something else. A pack whose number is
    `break_at` is interrupted by Ctrl-C instead.
    """

    def __init__(
        self,
        cost_of: TimeOf,
        *,
        peak_of: TimeOf = lambda levels: 1000,
        compile_of: TimeOf = lambda levels: 0.0,
        wrong: Callable[[Levels], bool] = lambda levels: False,
        counters_of: Callable[[Levels], dict[str, float]] = lambda levels: {},
        noise: float = 0.02,
        spikes: float = 0.02,
        seed: int = 0,
    ) -> None:
        self.cost_of, self.peak_of, self.compile_of, self.wrong = cost_of, peak_of, compile_of, wrong
        self.counters_of = counters_of
        self.noise, self.spikes = noise, spikes
        self.rng = np.random.default_rng(seed)
        self.break_at: str | None = None
        self.launched: list[str] = []
        self.timed = 0

    def __call__(
        self, folder: SweepFolder, manifest: Manifest, packs: list[Pack], *rest: object
    ) -> dict[str, str]:
        for pack in packs:
            if pack.id == self.break_at:
                raise KeyboardInterrupt
            self.launched.append(f"{manifest.sweep.name}/{pack.id}")
            for arm in pack.arms:
                self._support(folder, manifest, arm, pack.id)
            for number, order in enumerate(pack.orders):
                speed = math.exp(0.1 * self.rng.standard_normal())
                for arm in order:
                    self._timing(folder, manifest, arm, pack.id, number, speed)
        return {}

    def _support(self, folder: SweepFolder, manifest: Manifest, arm: str, pack: str) -> None:
        levels = manifest.arm(arm).levels
        evidence = spec_of(manifest, arm, pack, None, Kind.EVIDENCE)
        if list(folder.path.glob(f"trials/{arm}/*-evidence-*/record.json")):
            return
        write(folder, evidence, keys=self._keys())
        sign = -1.0 if self.wrong(levels) else 1.0
        write_evidence(
            folder.trial_dir(evidence), Evidence({"sum": sign * np.ones(4), "steps": np.ones(1)}, {})
        )
        counting = spec_of(manifest, arm, pack, None, Kind.COUNTING)
        write(
            folder,
            counting,
            keys=self._keys(),
            counters={"compile_s": float(self.compile_of(levels)), **self.counters_of(levels)},
        )

    def _timing(
        self, folder: SweepFolder, manifest: Manifest, arm: str, pack: str, number: int, speed: float
    ) -> None:
        levels = manifest.arm(arm).levels
        spike = self.rng.uniform(1.2, 3) if self.rng.random() < self.spikes else 1.0
        seconds = self.cost_of(levels) * speed * spike * math.exp(self.noise * self.rng.standard_normal())
        peak, budget = int(self.peak_of(levels)), manifest.sweep.measure.memory_bytes
        over = budget is not None and peak > budget
        ended = (
            {"outcome": Outcome.OOM, "failure": Failure(type="MemoryBudget", message="too much memory")}
            if over
            else {}
        )
        spec = spec_of(manifest, arm, pack, number, Kind.TIMING)
        write(folder, spec, region_ns=round(seconds * 1e9), peak_bytes=peak, keys=self._keys(), **ended)
        self.timed += 1

    def _keys(self) -> dict[str, str]:
        return environment.comparison_keys(environment.device_facts())


def baseline(rounds: dict[str, dict[str, float]], **own: Any) -> Baseline:
    """What other sweeps are compared with, of times by arm and round."""
    given = {"sweep": "s", "workload": "w", "unit": "pair", "config": "{}", "method": "m", "data": "d"}
    given |= {"device": "cpu", "torch": "2.13", "commit": "a", "reference": "naive", **own}
    return Baseline(**given, rounds=rounds)
