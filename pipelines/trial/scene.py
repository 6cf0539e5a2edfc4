"""Sets an arm up: seeds, threads, ranks, caches, workload; and records the facts around a measurement."""

from __future__ import annotations

import dataclasses
import multiprocessing
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from perfsweep.pipelines.store.planned import load_workload
from perfsweep.pipelines.store.trial_files import write_status
from perfsweep.pipelines.store.trial_schema import Failure, Kind, Outcome, TrialSpec
from perfsweep.pipelines.trial import layout, ranks, scratch
from perfsweep.pipelines.trial.identity import code_digest, refuse_other_packages
from perfsweep.pipelines.trial.machine import energy, environment
from perfsweep.pipelines.trial.machine.environment import HostUsage
from perfsweep.pipelines.trial.step_logging import BufferedLog, LiveLog, MetricLog
from perfsweep.workloads.api import Context, Device, Level, Workload, methods_in_sight
from perfsweep.workloads.errors import ConfigError, UnsupportedHere


@dataclasses.dataclass(frozen=True)
class Scene:
    """A workload that is set up, and the facts for each of its records."""

    workload: Workload
    device: Device
    log: MetricLog
    setup_s: float
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    calibration_ns: int | None = None

    def measure(
        self,
        spec: TrialSpec,
        measure: Callable[[], dict[str, Any]],
        over: Callable[[], tuple[HostUsage, HostUsage]] | None = None,
    ) -> dict[str, Any]:
        """The result of `measure`, with the facts around it; `over` gives the host's usage during turns."""
        before = environment.host_usage(self.workload.child_usage())
        found = measure()
        after = environment.host_usage(self.workload.child_usage())
        if over is not None:
            before, after = over()
        if spec.kind is Kind.TIMING:
            found |= self._usage_fields(spec, found, before, after)
            if self.device.type == "cpu":  # on a GPU the allocator enforces it
                found |= _over_budget(found["peak_bytes"], spec.measure.memory_bytes)
            found |= self._energy_alone(spec, found, before, after)
        keys = {**environment.comparison_keys(self.device), "data": self.workload.data_digest()}
        gpus = list(map(dataclasses.asdict, found.pop("loaded", ())))
        told = {"device": dataclasses.asdict(self.device), "gpus_under_load": gpus}
        facts = {**self.facts, **told, "energy": found.pop("energy", {})}
        facts = {"keys": keys, "environment": facts, "unit": self.workload.unit, "setup_s": self.setup_s}
        return {"outcome": Outcome.OK, **facts, **found}

    def _energy_alone(
        self, spec: TrialSpec, found: dict[str, Any], before: HostUsage, after: HostUsage
    ) -> dict[str, Any]:
        """Replaces the energy by a reason if other processes used energy at the same time."""
        if not (counted := found.get("energy")):
            return {}
        others = (spec.node_ranks - 1) * spec.measure.threads
        reason = energy.shared_by(before, after, counted["counters"], counted["source"], others)
        return energy.shared(found["quantities"], reason) if reason else {}

    def _usage_fields(
        self, spec: TrialSpec, found: dict[str, Any], before: HostUsage, after: HostUsage
    ) -> dict[str, Any]:
        """What disturbed a timed region, and how long other processes had its core."""
        usage, wall_ns, cpu_ns = found.pop("usage"), found["region_ns"], found["region_cpu_ns"]
        # Workers and writers of the trial use the core too, and the kernel's figures do not tell them from
        # other processes. Idle threads, such as those of a compiler, do no harm.
        resting = threading.active_count() == 1 or usage.others_rest(cpu_ns)
        elsewhere = self.workload.child_usage() is not None
        single = resting and not elsewhere and not multiprocessing.active_children()
        region = usage if single else None
        threads = spec.measure.threads if single and self.device.type == "cpu" else None
        own_delay_ns = usage.own_delay_ns if threads == 1 and spec.world == 1 else None
        if elsewhere:
            threads = max(1, round(cpu_ns / wall_ns))
        loaded, subtracted = found.get("loaded", ()), own_delay_ns is not None
        return {
            "disturbed": environment.disturbance(
                before, after, wall_ns, region, threads, loaded, subtracted=subtracted
            ),
            "calibration_ns": self.calibration_ns,
            "lost_ns": None if own_delay_ns is None else min(own_delay_ns, wall_ns - 1),
            "run_delay_ns": usage.run_delay_ns,
            "minor_faults": usage.minor_faults,
            "major_faults": usage.major_faults,
            "system_ns": usage.system_ns,
        }


def _over_budget(peak_bytes: int, budget: int | None) -> dict[str, Any]:
    """The outcome of a trial that used more memory than its budget; empty where it did not."""
    if budget is None or peak_bytes <= budget:
        return {}
    text = (
        f"peak memory of {peak_bytes / 2**30:.2f} GiB is over the {budget / 2**30:.2f} GiB of"
        " measure.memory_gib"
    )
    return {"outcome": Outcome.OOM, "failure": Failure(type="MemoryBudget", message=text)}


def _planned_workload(spec: TrialSpec) -> tuple[type[Workload], Any]:
    refuse_other_packages(spec.installed)
    cls, config = load_workload(spec.workload, spec.config)
    if code_digest(cls) != spec.code:
        raise ConfigError(
            "code_changed: the sources are not those the sweep was planned with; start the same command again"
        )
    return cls, config


@contextmanager
def set_up(spec: TrialSpec, folder: Path, rank: int) -> Iterator[Scene]:
    """The workload of a trial, ready for its first iteration; it is closed at the end, after errors too."""
    write_status(folder, "setting up")
    scratch.make(folder)
    cls, config = _planned_workload(spec)
    levels = cls.levels_of(spec.arm.levels)
    device = environment.device_facts()
    _refuse_unsupported(levels, device, spec.world // spec.node_ranks)
    if spec.kind is Kind.TIMING:
        layout.keep_junk(spec.arm.placebo)  # first: `shift_addresses` makes holes for the arm's memory
        layout.shift_addresses(_layout_seed(spec))
    _prepare_process(spec, device, rank, folder)
    calibration_ns = work_ns() if spec.kind is Kind.TIMING else None
    log = log_of(levels, spec, folder, rank)
    context, facts = _context(spec, folder, device, rank, log), environment.facts()  # before turns pin it
    layout.prepare_collector(cls, spec.arm.levels)
    workload = cls()
    shared = scratch.shared_folder(
        Path(spec.cache_dir), str(torch.__version__), device.name, spec.code + spec.installed
    )
    new = any(level.compiles_anew for level in levels.values())
    draw = spec.server if any(level.autotunes for level in levels.values()) else None
    own = folder / "scratch" / f"compiled{rank}"
    with scratch.compile_cache(spec.kind, shared, own, new, draw), methods_in_sight(workload) as check:
        start = time.perf_counter()
        try:
            workload.setup(config, spec.arm.levels, context)
            check()
            workload.cadence = spec.cadence or workload.cadence
            yield Scene(workload, device, log, time.perf_counter() - start, facts, calibration_ns)
        finally:
            workload.close()
            log.close()


def _layout_seed(spec: TrialSpec) -> int:
    return layout.draw(spec.sweep, spec.pack, spec.server, spec.arm.id, spec.round, spec.attempt)


def _refuse_unsupported(levels: dict[str, Level], device: Device, nodes: int) -> None:
    everywhere = dataclasses.replace(device, count=device.count * nodes)
    reasons = [
        f"{name}={level.value}: {reason}"
        for name, level in levels.items()
        if (reason := level.unsupported(everywhere if level.ranks > 1 else device))
    ]
    if reasons:
        raise UnsupportedHere("; ".join(reasons))


def _prepare_process(spec: TrialSpec, device: Device, rank: int, folder: Path) -> None:
    """Set seeds, threads and the process group, the same for every arm."""
    if device.type == "cpu":
        torch.set_num_threads(spec.measure.threads)
    elif (budget := spec.measure.memory_bytes) is not None and device.memory_bytes:
        share = min(1.0, budget / device.memory_bytes)
        # Only when CUDA is first used: a loader may fork workers before.
        torch.cuda._lazy_call(lambda: _limit_memory(share, device.count))
    random.seed(spec.seed)
    np.random.seed(spec.seed % 2**32)
    torch.manual_seed(spec.seed)
    ranks.join(device, ranks.Place.of(spec, rank), folder, spec.meet)


def _limit_memory(share: float, count: int) -> None:
    """Limit this process's memory on every GPU, as the workload chooses which one a rank uses."""
    for index in range(count):
        torch.cuda.set_per_process_memory_fraction(share, index)


def log_of(levels: dict[str, Level], spec: TrialSpec, folder: Path, rank: int) -> MetricLog:
    """The log that takes rows of metrics: in memory, unless a level sends rows from inside the loop."""
    intervals = [level.commit_every for level in levels.values() if level.commit_every]
    if not intervals or spec.kind in (Kind.EVIDENCE, Kind.COURSE, Kind.QUALITY) or rank > 0:
        return BufferedLog()
    return LiveLog(min(intervals), folder / "scratch")


def _context(spec: TrialSpec, folder: Path, device: Device, rank: int, log: MetricLog) -> Context:
    own = folder / "scratch" / f"rank{rank}"
    own.mkdir(parents=True, exist_ok=True)
    cache = Path(spec.cache_dir)
    cache.mkdir(parents=True, exist_ok=True)
    place = ranks.Place.of(spec, rank)
    return Context(
        device=device,
        scratch_dir=own,
        cache_dir=cache,
        seed=spec.seed,
        rank=rank,
        world=spec.world,
        node=place.node,
        local_rank=place.local_rank,
        local_world=place.local_world,
        master=spec.meet.rpartition(":")[0] if spec.meet else "127.0.0.1",
        memory_budget=spec.measure.memory_bytes,
        log=log,
        deadline=time.monotonic() + spec.measure.timeout_s,
    )


CALIBRATION_SIZE = 192
CALIBRATION_PRODUCTS = 128
"""Together some 20 ms of a core, within its own caches."""


def work_ns() -> int:
    """CPU time of a fixed piece of work on this thread: it tells a slow machine from slow code.

    It runs before set-up, the same for every arm, so that warm-up separates it from the region. CPU time
    leaves out the time of other processes, which is recorded elsewhere.
    """
    matrix = torch.full((CALIBRATION_SIZE, CALIBRATION_SIZE), 1 / CALIBRATION_SIZE, dtype=torch.float32)
    product = torch.mm(matrix, matrix)  # untimed: the first product initialises the library
    start = time.thread_time_ns()
    for _ in range(CALIBRATION_PRODUCTS):
        torch.mm(matrix, matrix, out=product)
    return time.thread_time_ns() - start
