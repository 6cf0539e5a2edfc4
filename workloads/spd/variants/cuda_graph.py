"""A whole iteration as one CUDA graph: captured once, replayed for every batch.

Whatever the host decides in an iteration is either the same in all of them or a tensor that it fills before
the replay: the batch, the learning rate, the exponent. Random numbers come from a generator that is
registered with the graph, so that each replay goes on where the last one stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from perfsweep.workloads import toggles as shared
from perfsweep.workloads.api import Clock, Levels, NullClock, Parity, Toggle
from perfsweep.workloads.spd.config import SpdConfig
from perfsweep.workloads.spd.variants.part import Part, TensorExponent, moves_sources
from perfsweep.workloads.variant import Variant, choices

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from perfsweep.workloads.spd.maths.sites import Stacks

    Advance = Callable[[Tensor, Clock], tuple[dict[str, Tensor], Stacks]]


def _not_one_graph(config: SpdConfig, levels: Levels) -> str | None:
    if not config.drop_last:
        return "a graph has one batch size, and workload.drop_last=false keeps a partial last batch"
    if levels["amp"] == "fp16" and levels["optimizer"] != "fused":
        return "the host reads whether scaled gradients overflowed, unless optimizer=fused does on the device"
    return moves_sources(config, levels)


def _unless_frozen(config: SpdConfig, levels: Levels) -> Parity | None:
    return None if config.frozen_draws else Parity.STOCHASTIC


CUDA_GRAPH = Toggle(
    "cuda_graph",
    choices(
        "off",
        "on",
        requires={"metrics": ("deferred",), "mask_checks": ("off",)},
        conflicts={"pgd_steps": ("schedule", "every_k", "persistent")},
        refused=_not_one_graph,
        loosened=_unless_frozen,
        unsupported=shared.needs_graphs,
        witness="graph_replays",
    ),
    "capture a step once and replay it",
)

EAGER_ITERATIONS = (
    3  # PyTorch asks for some before a capture: libraries set themselves up, and Adam makes its state
)


OF_THE_HOST = ("hook_registrations", "weight_fetches")
"""Counts of what only the host does, when it captures: a replay does none of it."""


class Replay:
    """Does an iteration's arithmetic: the first eagerly on a side stream, then by replaying their graph.

    The eager iterations are iterations of the training like any other, so a graph changes no trajectory.
    """

    def __init__(self, advance: Advance, arm: Part) -> None:
        import torch

        self._advance, self._arm, self._counts = advance, arm, arm.counts
        self._done = 0
        self._suspended = False
        self._counted: Counter[str] = Counter()
        self._stream = torch.cuda.Stream()
        self._graph: torch.cuda.CUDAGraph | None = None
        self._batch: Tensor | None = None
        self._found: tuple[dict[str, Tensor], Stacks] = ({}, {})

    def __call__(self, batch: Tensor, clock: Clock) -> tuple[dict[str, Tensor], Stacks]:
        """Terms and importances of an iteration; the next replay overwrites them."""
        if self._suspended or self._done < EAGER_ITERATIONS:
            self._done += 1
            return self._eager(batch)
        if self._graph is None:
            self._capture(batch)
        assert self._graph is not None and self._batch is not None
        with clock.phase("transfer"):
            self._batch.copy_(batch)
        with clock.phase("replay"):
            self._graph.replay()
        self._counts.update(self._counted)
        self._counts["graph_replays"] += 1
        return self._found

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Iterations are eager meanwhile; the next one captures again, since theirs are other gradients."""
        self._suspended = True
        try:
            yield
        finally:
            self._suspended, self._graph = False, None

    def _eager(self, batch: Tensor) -> tuple[dict[str, Tensor], Stacks]:
        import torch

        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            found = self._advance(batch, NullClock())
        torch.cuda.current_stream().wait_stream(self._stream)
        return found

    def _capture(self, batch: Tensor) -> None:
        """Record the iteration, and what it counts; nothing runs."""
        import torch

        self._batch = batch.clone()
        before = Counter(self._counts)
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self._arm.draws.generator)
        self._arm.updates.zero()  # gradients of the capture must come from the graph's own memory
        # A loader's thread may pin memory meanwhile, which is none of the capture's business.
        with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
            self._found = self._advance(self._batch, NullClock())
        self._graph = graph
        counted = self._counts - before
        self._counted = Counter({name: counted[name] for name in counted if name not in OF_THE_HOST})
        self._counts.subtract(self._counted)


class Graphed(TensorExponent):
    """Iterations are replayed."""

    capturable = True
    replay: Replay

    def begin(self, state: Mapping[str, Any] | None, values: Mapping[str, Tensor] | None) -> None:
        """Once values are there."""
        super().begin(state, values)
        self.replay = Replay(super().advance, self)

    def advance(self, batch: Tensor, clock: Clock) -> tuple[dict[str, Tensor], Stacks]:
        """By the graph, but for the first ones."""
        return self.replay(batch, clock)

    def uncaptured(self) -> AbstractContextManager[None]:
        """Iterations are eager meanwhile."""
        return self.replay.suspended()


VARIANTS = (Variant(CUDA_GRAPH, {"on": Graphed}),)
