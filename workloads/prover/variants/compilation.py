"""The step as one compiled graph: shapes must not depend on the data."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from perfsweep.workloads import toggles as shared
from perfsweep.workloads.api import NullClock
from perfsweep.workloads.prover.variants.part import COMPILED, REORDERED, Part
from perfsweep.workloads.variant import Variant

if TYPE_CHECKING:
    from perfsweep.workloads.prover.counters import Tally
    from perfsweep.workloads.prover.maths.episodes import Rows
    from perfsweep.workloads.prover.maths.state_values import EveryState

_STATIC: dict[str, Any] = {
    "requires": {"policy_rows": ("padded", "row_budget")},
    "conflicts": {"rule_pairs": ("ragged",)},
    "bounds": REORDERED,
}

COMPILE = shared.compile(
    *("default", "reduce_overhead", "max_autotune"),
    every=_STATIC,
    each={
        "reduce_overhead": {"unsupported": shared.needs_graphs, "witness": "cudagraph_recordings"},
        "max_autotune": {"autotunes": True},
    },
    source="Issue 2",
)


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

    def __init__(self, step: Callable[[Rows], tuple[Rows, Tally]], mode: str) -> None:
        import torch

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
        import torch

        if rows.batch not in self.buffers:
            self.buffers[rows.batch] = rows._make(tensor.clone() for tensor in rows)
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


class Compiled(Part):
    """The mode of the level."""

    static = True

    def build(self) -> None:
        """Compiled code cannot hold a clock's marks."""
        super().build()
        self.phase = NullClock.phase

    @cached_property
    def compiled(self) -> CompiledStep:
        """The step of the other levels, which its first calls compile."""
        return CompiledStep(super().step, str(self.levels["compile"]))

    def valued(self) -> EveryState:
        """Uncounted."""
        from perfsweep.workloads.prover.maths.state_values import Untallied

        return Untallied(self.policy.values)

    def step(self, rows: Rows) -> tuple[Rows, Tally]:
        """Rows one action further, and what was counted."""
        return self.compiled(rows)

    def warmed_up(self) -> None:
        """What is compiled from now on is compiled again."""
        super().warmed_up()
        self.compiled.warm, self.compiled.calls = True, 0

    def counted(self) -> dict[str, float]:
        """With compilations."""
        return {
            **super().counted(),
            "recompiles_after_warmup": self.compiled.after_warmup,
            "compiled_steps": self.compiled.calls,
            "recompile_s": self.compiled.compile_s / max(self.compiled.graphs, 1),
        }


VARIANTS = (
    Variant(COMPILE, others=Compiled),
    Variant(shared.compile_cache(every={"requires": COMPILED}, source="Future 3")),
)
