"""What an arm chooses, read from its levels once and nowhere else."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from perfsweep.workloads.api import Levels
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.probe1d.config import Probe1DConfig
from perfsweep.workloads.probe1d.data.problem import REPORT, SCALED, Penalty
from perfsweep.workloads.probe1d.maths.levenberg_marquardt import LATE, NAIVE, DampingRules
from perfsweep.workloads.probe1d.maths.precision import PRECISIONS, Precision

STATE_ARRAYS = 35
"""Arrays of [L, slab] that the report-time solver keeps at once."""
CHUNK_ARRAYS = 12
"""Arrays of [chunk, slab] that one chunk of a pass needs at once."""


@dataclass(frozen=True)
class Choices:
    """How an arm solves: names follow the toggles."""

    solver: str
    skip_zero_grad: str
    cache_row_idx: bool
    cast_once: bool
    chunk_events: int | str
    slab_size: int | str
    freeze_failed: int
    active_set: str
    timing_hook: str
    no_sync_log: bool
    precision: Precision
    label_free: bool
    csc_layout: bool
    compile: bool
    fused_kernel: bool
    scaled_stop: bool
    warm_start: str
    qx_stat: str
    confusion_search: bool

    @classmethod
    def of(cls, levels: Levels) -> Choices:
        """The choices of a complete, legal set of levels."""
        on = {name: value == "on" for name, value in levels.items()}
        chunk, slab = levels["chunk_events"], levels["slab_size"]
        return cls(
            solver=str(levels["solver"]),
            skip_zero_grad=str(levels["skip_zero_grad"]),
            cache_row_idx=on["cache_row_idx"],
            cast_once=on["cast_once"],
            chunk_events="auto" if chunk == "auto" else int(chunk),
            slab_size="all" if slab == "all" else int(slab),
            freeze_failed=int(levels["freeze_failed"]),
            active_set=str(levels["active_set"]),
            timing_hook=str(levels["timing_hook"]),
            no_sync_log=on["no_sync_log"],
            precision=PRECISIONS[str(levels["precision"])],
            label_free=on["label_free"],
            csc_layout=on["csc_layout"],
            compile=on["compile"],
            fused_kernel=on["fused_kernel"],
            scaled_stop=levels["consistent_stop"] == "scaled",
            warm_start=str(levels["warm_start"]),
            qx_stat=str(levels["qx_stat"]),
            confusion_search=on["confusion_search"],
        )

    @property
    def certified(self) -> bool:
        """Whether every pair is certified."""
        return self.solver == "newton"

    def penalty(self, config: Probe1DConfig) -> Penalty:
        """The scaled one where pairs are certified, else the report's."""
        usual = SCALED if self.certified else REPORT
        return usual if config.ridge is None else dataclasses.replace(usual, ridge=config.ridge)

    def rules(self, config: Probe1DConfig) -> DampingRules:
        """Constants of the naive or the late form, with the configured number of passes."""
        rules = LATE if self.solver == "late" else NAIVE
        return rules if config.max_iter is None else dataclasses.replace(rules, max_iter=config.max_iter)

    def slab_width(self, classes: int) -> int:
        """Classes of a slab; a slab wider than the grid means all of it."""
        return classes if self.slab_size == "all" else min(int(self.slab_size), classes)

    def chunk_limit(self, cache_bytes: int, classes: int) -> int:
        """Events of a chunk; `auto` keeps one chunk's temporaries in a cache of that size."""
        if self.chunk_events != "auto":
            return int(self.chunk_events)
        per_event = CHUNK_ARRAYS * self.slab_width(classes) * self.precision.compute.itemsize
        return max(1024, cache_bytes // per_event)

    def slab_bytes(self, latents: int, classes: int, chunk: int) -> int:
        """Memory of one slab without the data: state and, by row, the temporaries of one chunk."""
        width = self.slab_width(classes)
        state = STATE_ARRAYS * latents * width * self.precision.sums.itemsize
        return state + (
            0 if self.csc_layout else CHUNK_ARRAYS * chunk * width * self.precision.compute.itemsize
        )

    def check_memory(self, budget: int | None, latents: int, classes: int, chunk: int) -> None:
        """Refuse a slab that does not fit.

        Raises
        ------
        ConfigError
            The slab needs more than `budget` bytes; the message names the widest slab that fits.
        """
        needed = self.slab_bytes(latents, classes, chunk)
        if budget is None or needed <= budget:
            return
        fits = int(self.slab_width(classes) * budget / needed)
        advice = (
            f"toggles.slab_size={fits} would fit"
            if fits
            else "not even one class fits: raise workload.memory_mb"
        )
        raise ConfigError(
            f"toggles.slab_size={self.slab_size} needs {needed / 2**20:.1f} MiB for {latents} latents and the"
            f" budget is {budget / 2**20:.1f} MiB (workload.memory_mb); {advice}"
        )
