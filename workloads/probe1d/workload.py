"""Probe1D: one two-parameter logistic regression for every (latent, class) pair of sparse activations."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from perfsweep.workloads.api import Context, Evidence, Levels, Workload
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.job_passes import JobOfPasses
from perfsweep.workloads.probe1d import declaration
from perfsweep.workloads.probe1d import evidence as judging
from perfsweep.workloads.probe1d.config import SAMPLE_WIDTH, Probe1DConfig
from perfsweep.workloads.probe1d.counters import Counts
from perfsweep.workloads.probe1d.data.npz import save_probes
from perfsweep.workloads.probe1d.data.sources import load_data, place, requested_classes, sampled_classes
from perfsweep.workloads.probe1d.maths.blocks import Reason
from perfsweep.workloads.probe1d.maths.job import Job, Task, explained, intercept_only_loss
from perfsweep.workloads.probe1d.maths.prepared_rows import Prepared
from perfsweep.workloads.probe1d.oracle import Objective
from perfsweep.workloads.probe1d.variants import arm

KEPT = "probes.npz"
"""Name of the file of probes in the folder that a job is kept in."""


class Probe1D(JobOfPasses, declaration.Probe1D, Workload):
    """A job; see what it declares."""

    def setup(self, config: Probe1DConfig, levels: Levels, context: Context) -> None:
        """Load the data and choose the paths.

        Raises
        ------
        ConfigError
            The data cannot be used, or a slab does not fit the memory budget.
        """
        self.config, self.context = config, context
        self.counts, self.device = Counts(), context.device.type
        self.arm_paths = arm(levels)(levels, config, self.counts, context.log, self._phase, self.device)
        data = load_data(config.data, config.data_seed, self.device, context.cache_dir, config.classes)
        data = place(data, self.device, config.storage_dtype)
        grid = self._requested_grid(data.labels.classes)
        self._check_memory(data.x.latents, grid.numel())
        self.task = Task(data, grid.to(self.device), config, self.arm_paths)
        self.prepared: Prepared | None = None
        if not config.sort_in_job:
            self.prepared = self.arm_paths.prepare(data, self.task.grid)
        self._begin()

    def _requested_grid(self, classes: int) -> Tensor:
        """Numbers of the classes to solve; notes their share of the ones that were asked for."""
        requested = requested_classes(self.config.data, classes)
        grid = sampled_classes(requested, SAMPLE_WIDTH, self.config.slabs, self.context.seed)
        self.sampled_share = grid.numel() / requested
        return grid

    def _check_memory(self, latents: int, classes: int) -> None:
        config, budget = self.config, self.context.memory_budget
        if config.memory_mb is not None:
            budget = min(budget or config.memory_mb * 2**20, config.memory_mb * 2**20)
        self.arm_paths.check_memory(budget, latents, classes)

    def _phase(self, name: str) -> AbstractContextManager[Any]:
        return self.clock.phase(name)

    def _begin(self) -> None:
        self.job = Job(self.task, self.prepared)
        self.begin(self.job.passes())

    def job_ended(self) -> None:
        """Count the finished job."""
        self.counts.add("jobs")

    def reset(self) -> None:
        """Forget the solution and start over from the same data."""
        self.arm_paths.hook.job_ends()
        self._begin()

    def progress(self) -> float:
        """Pairs of finished slabs, solved or not."""
        return float(self.job.solved_pairs)

    def counters(self) -> Mapping[str, float]:
        """Counts since set-up; `sampled_share` is the share of the classes that was solved."""
        values = self.counts.values
        padded = values["padded_slots"] / values["stored_events"] if values["stored_events"] else 1.0
        return self.counts.snapshot([("pad_factor", padded), ("sampled_share", self.sampled_share)])

    def results(self) -> dict[str, np.ndarray]:
        """Result matrices [L, C] of the finished job, by their names in the file of probes."""
        return self.job.by_name()

    def keep(self, folder: Path) -> None:
        """Write the probes of the finished job as `probes.npz`: arrays and types in `data.npz.PROBES`.

        Raises
        ------
        ConfigError
            No job is done yet, or the file cannot be written.
        """
        if not self.job.results:
            raise ConfigError("there are no probes to keep before the job is done")
        save_probes(folder / KEPT, {"classes": self.task.grid.cpu().numpy(), **self.results()})

    def numbers(self) -> dict[str, float]:
        """The mean loss over the pairs of the finished job."""
        return {"loss_mean": float(self.results()["loss"].mean())} if "loss" in self.job.results else {}

    def evidence(self) -> Evidence:
        """Figures of the finished job, parameters, pass probes and the oracle."""
        if not self.job.results:
            return Evidence()
        results = self.results()
        evaluated = results["evals"]
        numbers = {
            "pairs": float(self.job.solved_pairs),
            "evaluations_per_pair": float(evaluated.mean()),
            "evaluations_p99": float(np.percentile(evaluated, 99)),
            "evaluations_max": float(evaluated.max()),
            "sampled_share": self.sampled_share,
        }
        numbers |= {f"reason_{number:d}": float((results["reason"] == number).sum()) for number in Reason}
        penalty = self.arm_paths.penalty
        objective = Objective(penalty.ridge, penalty.scaled)
        judged = judging.full(self.task, self.job, results, objective, self._minimum_file(objective))
        own = {
            **self.numbers(),
            **self._class_summary(results),
        }  # the mean loss as the job itself computes it
        return Evidence(judged.tensors, {**numbers, **judged.numbers, **own})

    def _class_summary(self, results: dict[str, np.ndarray]) -> dict[str, float]:
        held_out = self.job.prepared.held_out if self.job.prepared else None
        if held_out is None or "loss_val" not in results:
            return {}
        base = intercept_only_loss(held_out.constants.prior, held_out)
        train_prior = self.job.prepared.train.constants.prior if self.job.prepared else base
        base = intercept_only_loss(train_prior, held_out).cpu().numpy()
        share = explained(results["loss"], results["loss_val"], base)
        return {"explained_mean": float(share.mean()), "explained_max": float(share.max())}

    def _minimum_file(self, objective: Objective) -> Path:
        """Where the minimum of this problem is kept between trials: data, grid and objective determine it."""
        key = [
            self.data_digest(),
            self.task.grid.tolist(),
            self.config.storage_dtype,
            *vars(objective).values(),
        ]
        name = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
        return self.context.cache_dir / f"probe1d-minimum-{name}.npz"

    def data_digest(self) -> str:
        """SHA-256 over a problem's arrays; of its description at full size, to avoid moving 27 GB."""
        x, labels = self.task.data.x, self.task.data.labels
        sha = hashlib.sha256(
            f"{self.config.data} {self.config.data_seed} {x.rows} {x.latents} {x.nnz}".encode()
        )
        if x.nnz <= 2**26:
            stored = labels.ids if labels.ids is not None else labels.multi
            assert stored is not None
            for array in (x.indptr, x.indices, x.values, stored):
                sha.update(array.cpu().numpy().tobytes())
        return sha.hexdigest()[:16]

    def close(self) -> None:
        """Stop a profiler that a broken job left running."""
        if hasattr(self, "task"):
            self.arm_paths.hook.job_ends()
