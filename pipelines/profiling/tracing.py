"""torch.profiler: which operators and kernels the time goes to, and a trace of them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from perfsweep.pipelines.profiling.tool import Findings, Measured, Tick, Tool
from perfsweep.pipelines.store.options import ProfileConfig
from perfsweep.pipelines.store.profiles import Cost

TRACE, TABLE = "trace.json.gz", "operators.txt"
ROWS = 60
NAME_WIDTH = 60
BETWEEN = "(between operators)"
"""What is left of an iteration when its operators are taken away: Python, mostly."""


class Tracing(Tool):
    """One trace of the slice, for Perfetto or chrome://tracing, and operators of all its repetitions."""

    watches_before = True

    def __init__(self, options: ProfileConfig, folder: Path) -> None:
        super().__init__(options, folder)
        self._costs: dict[str, Cost] = {}
        self._table = ""

    @contextmanager
    def block(self, lead: int, length: int | None) -> Iterator[Tick]:
        warmup = min(self.options.warmup, lead)
        cuda = [ProfilerActivity.CUDA] if torch.cuda.is_available() else []
        found = profile(
            activities=[ProfilerActivity.CPU, *cuda],
            schedule=schedule(wait=lead - warmup, warmup=warmup, active=length or sys.maxsize, repeat=1),
            with_stack=self.options.stacks,
            acc_events=True,  # else the events of the last repetition are gone when the profiler stops
        )
        found.start()
        steps = Steps(found, None if length is None else lead + length)
        try:
            yield steps
        finally:
            found.stop()
        self._keep(found)

    def _keep(self, found: profile) -> None:
        averages = found.key_averages()
        for cost in costs(averages):
            self._costs[cost.name] = added(self._costs.get(cost.name), cost)
        if self._table:
            return  # the files show one repetition
        found.export_chrome_trace(str(self.folder / TRACE))
        by = f"self_{'cuda' if torch.cuda.is_available() else 'cpu'}_time_total"
        self._table = averages.table(sort_by=by, row_limit=ROWS, max_name_column_width=NAME_WIDTH)
        (self.folder / TABLE).write_text(self._table)

    def finish(self, measured: Measured) -> Findings:
        longest = sorted(self._costs.values(), key=lambda cost: (cost.device_ns, cost.self_ns), reverse=True)
        return Findings(tuple(longest), (("operators", float(len(longest))),))


class Steps:
    """Tells torch's profiler that an iteration has ended, except after the last: `stop` ends that one."""

    def __init__(self, found: profile, total: int | None) -> None:
        self._found, self._total, self._done = found, total, 0

    def __call__(self) -> None:
        self._done += 1
        if self._done != self._total:
            self._found.step()


def costs(averages: Iterable[Any]) -> Iterator[Cost]:
    """Self times of torch's averaged events, on the host and on the device."""
    for event in averages:
        on_device = event.device_type.name != "CPU"
        if on_device and event.is_user_annotation:
            continue  # it spans the kernels inside it, which are here themselves
        yield Cost(
            name=BETWEEN if event.key.startswith("ProfilerStep") else event.key,
            # An operator's device time is that of its kernels, which are here themselves too.
            self_ns=event.self_cpu_time_total * 1e3,
            device_ns=event.self_device_time_total * 1e3 if on_device else 0.0,
            calls=float(event.count),
        )


def added(before: Cost | None, more: Cost) -> Cost:
    """Two costs of one name together."""
    if before is None:
        return more
    names = ("self_ns", "device_ns", "calls")
    return before.model_copy(update={name: getattr(before, name) + getattr(more, name) for name in names})
