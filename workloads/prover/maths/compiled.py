"""The step as one compiled graph, with what compiling it cost."""

from __future__ import annotations

import sys
import time

import torch

from perfsweep.workloads.prover.counters import Tally
from perfsweep.workloads.prover.maths.episodes import Rows
from perfsweep.workloads.prover.maths.step import Step

MODES = {"default": "default", "reduce_overhead": "reduce-overhead", "max_autotune": "max-autotune"}


def compiled_graphs() -> int:
    """Graphs compiled by this process so far."""
    utilities = sys.modules.get("torch._dynamo.utils")
    return int(utilities.counters["stats"]["unique_graphs"]) if utilities else 0


class CompiledStep:
    """One graph per slab size: shapes are static, a new size compiles again.

    On CUDA, rows live in buffers that keep their addresses from replay to replay, so that a graph neither
    copies its inputs nor overwrites what it has yet to read; its outputs are copied back into them.
    """

    def __init__(self, step: Step, mode: str) -> None:
        # A size more than Dynamo's default limit of eight would run eagerly from then on, silently.
        torch._dynamo.config.recompile_limit = max(64, torch._dynamo.config.recompile_limit)
        self.function = torch.compile(step, mode=MODES[mode], dynamic=False, fullgraph=True)
        self.graphed = mode != "default"
        self.buffers: dict[int, Rows] = {}
        self.compile_s = 0.0
        self.graphs = 0
        self.after_warmup = 0
        self.calls = 0
        self.warm = False

    def __call__(self, rows: Rows) -> tuple[Rows, Tally]:
        """One step."""
        graphs, start = compiled_graphs(), time.perf_counter()
        rows, tally = self._replayed(rows) if self.graphed and rows.done.is_cuda else self.function(rows)
        new = compiled_graphs() - graphs
        if new:
            self.compile_s += time.perf_counter() - start
            self.graphs += new
            self.after_warmup += new if self.warm else 0
        self.calls += 1
        tally = dict(tally)
        tally["states_evaluated"] = tally["states_padded"]
        return rows, tally

    def _replayed(self, rows: Rows) -> tuple[Rows, Tally]:
        if rows.batch not in self.buffers:
            self.buffers[rows.batch] = Rows(*(tensor.clone() for tensor in rows))
            for tensor in self.buffers[rows.batch]:
                torch._dynamo.mark_static_address(tensor)
        buffer = self.buffers[rows.batch]
        for kept, new in zip(buffer, rows, strict=True):
            if kept.data_ptr() != new.data_ptr():
                kept.copy_(new)
        torch.compiler.cudagraph_mark_step_begin()
        stepped, tally = self.function(buffer)
        for kept, new in zip(buffer, stepped, strict=True):
            kept.copy_(new)
        counted: Tally = {
            name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in tally.items()
        }
        return buffer, counted
