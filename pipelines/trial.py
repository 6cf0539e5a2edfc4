"""One process that runs one arm once: set-up, warm-up, timed region, record.

Started by `pipelines.spawn`: forked from a server that has imported torch, or by exec with the path of a spec.json.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import random
import shutil
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed

from pipelines.config import workload_config
from pipelines.identity import code_digest
from pipelines.measure import environment
from pipelines.publish import BufferedLog, LiveLog
from pipelines.records import Failure, Kind, Outcome, TrialRecord, TrialSpec, read_spec, write_record, write_status
from pipelines.regions import counted, evidenced, prepare_collector, timed
from pipelines.spawn import die_with_parent
from workloads import registry
from workloads.api import Context, Device, Level, Workload
from workloads.errors import ConfigError, UnsupportedHere


def run(spec: TrialSpec, folder: Path, rank: int = 0) -> TrialRecord:
    """Run a trial and publish its record; whatever the workload does ends as an outcome.

    All ranks of a process group run the same iterations; rank 0 alone writes.
    """
    started = time.time()
    try:
        found = _run(spec, folder, rank)
    except UnsupportedHere as error:
        found = {"outcome": Outcome.UNSUPPORTED, "failure": Failure(type="UnsupportedHere", message=str(error))}
    except Exception as error:  # noqa: BLE001 - the workload's code is not ours: whatever it raises is an outcome
        found = {"outcome": Outcome.OOM if is_oom(error) else Outcome.FAILED, "failure": as_failure(error)}
    record = TrialRecord.of(spec, started, **found)
    if rank == 0:
        write_record(folder, record)
        shutil.rmtree(folder / "scratch", ignore_errors=True)
    return record


def is_oom(error: BaseException) -> bool:
    """Whether an exception says that memory ran out; CPU allocators raise a plain RuntimeError."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


def as_failure(error: BaseException) -> Failure:
    """An exception as data."""
    text = "".join(traceback.format_exception(error))
    return Failure(type=type(error).__name__, message=str(error), traceback=text)


def _run(spec: TrialSpec, folder: Path, rank: int) -> dict[str, Any]:
    """Everything between start and record, as fields of the record."""
    write_status(folder, "setting up")
    cls = registry.find(spec.workload)
    if code_digest(cls) != spec.code:
        raise ConfigError("code_changed: the sources are not those the sweep was planned with; start the same command again")
    levels = _levels(cls, spec)
    device = environment.device_facts()
    _refuse_unsupported(levels, device)
    _prepare_process(spec, device, rank, folder)
    log = _log(spec, folder, rank)
    context = _context(spec, folder, device, rank, log)
    prepare_collector(cls)
    workload = cls()
    before = environment.snapshot()
    setup_start = time.perf_counter()
    try:
        workload.setup(workload_config(cls, spec.config), spec.arm.levels, context)
        setup_s = time.perf_counter() - setup_start
        measure = {Kind.TIMING: timed, Kind.COUNTING: counted, Kind.EVIDENCE: evidenced}[spec.kind]
        found = measure(workload, spec, folder, device, log)
        threads = _busy_threads(spec, device)
        keys = {**environment.comparison_keys(device), "data": workload.data_digest()}
    finally:
        workload.close()
        log.close()
    after = environment.snapshot()
    if spec.kind is Kind.TIMING:
        wall_s, cpu_s = found["region_ns"] / 1e9, found["region_cpu_ns"] / 1e9
        found["disturbed"] = environment.disturbance(before, after, wall_s=wall_s, cpu_s=cpu_s, threads=threads)
    facts = {**environment.facts(), "device": dataclasses.asdict(device)}
    return {"outcome": Outcome.OK, "setup_s": setup_s, "keys": keys, "environment": facts, **found}


def _levels(cls: type[Workload], spec: TrialSpec) -> dict[str, Level]:
    toggles = {toggle.name: toggle for toggle in cls.toggles}
    return {name: toggles[name].level(value) for name, value in spec.arm.levels.items()}


def _refuse_unsupported(levels: dict[str, Level], device: Device) -> None:
    reasons = [f"{name}={level.value}: {reason}" for name, level in levels.items() if (reason := level.unsupported(device))]
    if reasons:
        raise UnsupportedHere("; ".join(reasons))


def _prepare_process(spec: TrialSpec, device: Device, rank: int, folder: Path) -> None:
    """Seeds, threads, compile cache and process group: the same start for every arm."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(spec.cache_dir) / "inductor")
    if device.type == "cpu":
        torch.set_num_threads(spec.measure.threads)
    seed = spec.measure.seed
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
    if spec.world > 1:
        backend = "nccl" if device.type == "cuda" else "gloo"
        meeting_point = (folder / "rendezvous").absolute().as_uri()
        torch.distributed.init_process_group(backend, init_method=meeting_point, rank=rank, world_size=spec.world)


def _log(spec: TrialSpec, folder: Path, rank: int) -> BufferedLog | LiveLog:
    """Where rows of metrics go: into memory, unless sending them from inside the loop is the toggle under test."""
    level = spec.arm.levels.get("wandb_logging", "buffered")
    if level == "buffered" or spec.kind is Kind.EVIDENCE or rank > 0:
        return BufferedLog()
    return LiveLog(str(level), folder / "scratch")


def _context(spec: TrialSpec, folder: Path, device: Device, rank: int, log: BufferedLog | LiveLog) -> Context:
    scratch = folder / "scratch" / f"rank{rank}"
    scratch.mkdir(parents=True, exist_ok=True)
    cache = Path(spec.cache_dir)
    cache.mkdir(parents=True, exist_ok=True)
    return Context(
        device=device,
        scratch_dir=scratch,
        cache_dir=cache,
        seed=spec.measure.seed,
        rank=rank,
        world=spec.world,
        log=log,
        kind=spec.kind.value,
        deadline=time.monotonic() + spec.measure.timeout_s,
    )


def _busy_threads(spec: TrialSpec, device: Device) -> int | None:
    """Threads that the arm computes with, None where it also waits: for a device, worker processes or writer threads."""
    alone = threading.active_count() == 1 and not multiprocessing.active_children()
    return spec.measure.threads if device.type == "cpu" and alone else None


def main(arguments: list[str]) -> int:
    """Run the trial of a spec.json; the exit status says only whether a record was written."""
    file = Path(arguments[0])
    rank = int(arguments[1]) if len(arguments) > 1 else 0
    run(read_spec(file), file.parent, rank)
    return 0


if __name__ == "__main__":
    die_with_parent()
    sys.exit(main(sys.argv[1:]))
