"""Counts of a counting trial: operations, reads, FLOPs, saved bytes, collections, kernels of a device.

A counting trial begins undisturbed and counts compiles (`compiles.CompileCounting`) and collections
(`CountingGc`), both cheap enough for timing trials too. Its last pass runs a few iterations under `Counting`,
whose dispatch mode sees every operator call and costs several times the iteration.

Compiled code and dispatch modes do not mix: torch.compile skips a frame that starts under a mode, and *keeps
skipping it* after the mode is gone, so that the arm silently stays eager. `Counting` therefore switches
compilation off while it counts (``torch.compiler.set_stance("force_eager")``), which leaves compiled code and
guards as they were. What it counts for a compiled arm is the arithmetic that was compiled, not the kernels
that came out.

Everything private of torch that perfsweep touches is here, in `operators` and in `compiles`, and guarded:
what a torch release lacks is None in the result.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from perfsweep.pipelines.trial.counting.operators import OperatorCalls


class Counting:
    """Counts operator calls while entered, for a counting trial. Never around anything that is timed.

    Parameters
    ----------
    iterations : how many iterations run inside; `result` divides by it. May be set before `result` is called.

    Notes
    -----
    Other processes and the bodies of higher order operators (`torch.cond` and the like) are not seen. Where a
    CUDA graph was replayed nothing is known, and every count is None: its operators ran when it was captured.
    """

    def __init__(self, iterations: int = 1) -> None:
        self.iterations = iterations
        self._calls = OperatorCalls()
        self._saved = _SavedBytes()
        self._replays = 0
        self._stack = ExitStack()

    def __enter__(self) -> Counting:
        import torch

        with ExitStack() as stack:
            stack.enter_context(self._seeing_replays(torch.cuda.CUDAGraph))
            stack.enter_context(torch.compiler.set_stance("force_eager"))
            stack.enter_context(
                torch.autograd.graph.saved_tensors_hooks(self._saved.pack, self._saved.unpack)
            )
            stack.enter_context(self._calls.mode())
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._stack.__exit__(*exception)

    @contextmanager
    def _seeing_replays(self, graphs: Any) -> Iterator[None]:
        replay = graphs.replay

        def counted(graph: Any) -> None:
            self._replays += 1
            replay(graph)

        graphs.replay = counted
        try:
            yield
        finally:
            graphs.replay = replay

    def result(self) -> dict[str, float | None]:
        """Per iteration: ops, host_reads, flops, saved_bytes, low_precision_ops."""
        totals: dict[str, float | None] = {
            "ops": self._calls.ops,
            "host_reads": self._calls.host_reads,
            "flops": self._calls.flops,
            "saved_bytes": self._saved.total,
            "low_precision_ops": self._calls.low_precision_ops,
        }
        if self._replays:
            return dict.fromkeys(totals)
        return {
            name: total / self.iterations if total is not None else None for name, total in totals.items()
        }


class _SavedBytes:
    """Bytes kept for backward passes: a storage once while some of it is kept, parameters not at all.

    A storage that is let go and saved again counts again, so the total grows with every iteration and
    micro-batch. What checkpointing recomputes does not count with ``use_reentrant=False``; the reentrant form
    saves in the backward pass like any other code. A parameter is recognised directly and through views, not
    through ``detach()``.
    """

    def __init__(self) -> None:
        self.total = 0
        self._kept: Counter[int] = Counter()

    def pack(self, tensor: Any) -> Any:
        """What autograd keeps in place of `tensor`."""
        import torch

        if (
            _belongs_to_parameter(tensor) or tensor.layout is not torch.strided
        ):  # sparse tensors have no one storage
            return tensor
        storage = tensor.untyped_storage()
        key = storage._cdata
        if not self._kept[key]:
            self.total += storage.nbytes()
        self._kept[key] += 1
        return _Kept(tensor, self, key)

    def unpack(self, kept: Any) -> Any:
        """The tensor that was saved."""
        return kept.tensor if isinstance(kept, _Kept) else kept

    def release(self, key: int) -> None:
        """Autograd let go of a saved tensor."""
        self._kept[key] -= 1
        if not self._kept[key]:
            del self._kept[key]


class _Kept:
    """A saved tensor that tells when it is let go."""

    __slots__ = ("_key", "_owner", "tensor")

    def __init__(self, tensor: Any, owner: _SavedBytes, key: int) -> None:
        self.tensor = tensor
        self._owner = owner
        self._key = key

    def __del__(self) -> None:
        self._owner.release(self._key)


def _belongs_to_parameter(tensor: Any) -> bool:
    """Whether the memory is held anyway by what is optimised or frozen."""
    import torch

    owner = tensor if tensor._base is None else tensor._base
    return isinstance(owner, torch.nn.Parameter) or (owner.is_leaf and owner.requires_grad)


class CountingGc:
    """Counts runs of Python's collector while entered, and their time."""

    def __init__(self) -> None:
        self.collections = [0, 0, 0]
        self.spent_ns = 0
        self._started_ns = 0

    def __enter__(self) -> CountingGc:
        gc.callbacks.append(self._on_collection)
        return self

    def __exit__(self, *exception: Any) -> None:
        gc.callbacks.remove(self._on_collection)

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._started_ns = time.perf_counter_ns()
        elif self._started_ns:  # else entered inside a collection: its start was not seen
            self.collections[info["generation"]] += 1
            self.spent_ns += time.perf_counter_ns() - self._started_ns
            self._started_ns = 0

    def result(self) -> dict[str, float | None]:
        """Totals: gc_collections, gc_full_collections, gc_ns."""
        return {
            "gc_collections": float(sum(self.collections)),
            "gc_full_collections": float(self.collections[-1]),
            "gc_ns": float(self.spent_ns),
        }


class DeviceActivity:
    """Counts kernels while entered, copies and fills included, and the time in which any of them runs.

    Events at the ends of an iteration cannot tell: a device that waits for the host passes them as late as
    the host sets them. The profiler sees each kernel, and what a kernel takes does not depend on how late it
    was launched.
    """

    def __init__(self) -> None:
        self._profile: Any = None
        self._found: dict[str, float] = {}

    def __enter__(self) -> DeviceActivity:
        from torch.profiler import ProfilerActivity, profile, supported_activities

        if ProfilerActivity.CUDA in supported_activities():  # not in a torch built without CUPTI
            self._profile = profile(activities=[ProfilerActivity.CUDA])
            self._profile.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._profile is not None:
            self._profile.__exit__(*exception)
            self._found = summary(self._profile.events())

    def result(self, iterations: int, units: float) -> dict[str, float | None]:
        """kernel_launches per iteration, and device_busy_ns per unit; None where nothing was seen."""
        if not self._found.get("kernels"):
            return {"kernel_launches": None, "device_busy_ns": None}
        busy_ns = self._found["busy_ns"] / units if units > 0 else None
        return {"kernel_launches": self._found["kernels"] / iterations, "device_busy_ns": busy_ns}


def summary(events: Iterable[Any]) -> dict[str, float]:
    """Number of device events of a profile, and the time that their union covers."""
    spans = [
        (event.time_range.start, event.time_range.end)
        for event in events
        if "CPU" not in str(event.device_type)
    ]
    return {"kernels": float(len(spans)), "busy_ns": 1e3 * covered(spans)}


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """Length of the union of intervals: kernels on several streams overlap."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        if end > reached:
            total += end - max(start, reached)
            reached = end
    return total
