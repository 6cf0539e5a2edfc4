"""Counts of a counting trial: operations, reads, FLOPs, saved bytes, collections, kernels of a device.

A counting trial begins undisturbed and counts compiles (`compiles.CompileCounting`) and collections
(`CountingGc`), both cheap enough for timing trials too. Its last pass runs a few iterations under `Counting`,
whose dispatch mode sees every operator call and costs several times the iteration.

Compiled code and dispatch modes do not mix: torch.compile skips a frame that starts under a mode, and *keeps
skipping it* after the mode is gone, so that the arm silently stays eager. `Counting` therefore switches
compilation off while it counts (``torch.compiler.set_stance("force_eager")``), which leaves compiled code and
guards as they were. What it counts for a compiled arm is the arithmetic that was compiled, not the kernels
that came out.

Everything private of torch that perfsweep touches is here and in `compiles`, and guarded: what a torch
release lacks is None in the result.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


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
        if tensor.layout is not torch.strided or _belongs_to_parameter(tensor):
            return tensor  # a sparse tensor has no one storage
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


_PRODUCTS = frozenset(
    {"mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "vdot", "linear", "mkldnn_linear"}
    | {"_addmm_activation", "_scaled_mm", "_int_mm", "mkldnn_rnn_layer", "_cudnn_rnn"}
)
_PRODUCT_STEMS = ("convolution", "_scaled_dot_product_", "_flash_attention_", "_efficient_attention_")
_SIZED_BY_MASK = ("index_put", "index_put_", "_index_put_impl_")
_SCALAR_READS = frozenset({"_local_scalar_dense", "is_nonzero", "item", "equal", "allclose"})
_COPIES = frozenset({"_to_copy", "copy_", "_copy_from"})
_NO_WORK = frozenset({"_unsafe_view", "_reshape_alias"})  # views in all but schema


@dataclass(frozen=True)
class _Operator:
    """What has to be known of an operator to count its calls, looked up once."""

    name: str
    works: bool  # neither a view nor bookkeeping
    reads_scalar: bool
    sized_by_data: bool
    copies: bool
    multiplies: bool
    composite: bool
    flops: Callable[..., float] | None


class OperatorCalls:
    """Totals over all operator calls under its mode."""

    def __init__(self) -> None:
        self.ops = 0
        self.host_reads = 0
        self.low_precision_ops = 0
        self.flops: float | None = 0
        self.operator = cache(self._look_up)
        self._notes: dict[str, None] = {}
        self._formulas = _flop_formulas()
        if self._formulas is None:
            self.flops = None
            self._notes["torch.utils.flop_counter has no flop_registry"] = None

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(self._notes)

    def mode(self) -> Any:
        """A dispatch mode that counts and changes nothing."""
        calls = self

        class CountingMode(TorchDispatchMode):
            supports_higher_order_operators = True  # without it, torch.cond and others raise under any mode

            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                kwargs = kwargs or {}
                operator = calls.operator(func)
                if operator is not None and operator.composite:
                    # inference mode hands over whole composites; their parts are what is counted elsewhere
                    with self:
                        return func.decompose(*args, **kwargs)
                out = func(*args, **kwargs)
                if operator is not None:
                    calls.count(operator, args, kwargs, out)
                return out

        return CountingMode()

    def _look_up(self, func: Any) -> _Operator | None:
        """What is known of `func`; None for a higher order operator."""
        if not isinstance(func, torch._ops.OpOverload):
            self._notes[f"the body of {func} is not counted"] = None
            return None
        name = func.overloadpacket.__name__
        flops = (self._formulas or {}).get(func.overloadpacket)
        multiplies = name in _PRODUCTS or any(stem in name for stem in _PRODUCT_STEMS)
        composite = _is_composite(func)
        if multiplies and flops is None and not composite:
            self._notes[f"torch has no FLOP formula for {name}"] = None
        return _Operator(
            name=name,
            works=not func.is_view and name not in _NO_WORK and func.namespace not in ("prim", "profiler"),
            reads_scalar=name in _SCALAR_READS,
            sized_by_data=torch.Tag.dynamic_output_shape in func.tags or name in _SIZED_BY_MASK,
            copies=name in _COPIES,
            multiplies=multiplies or flops is not None,
            composite=composite,
            flops=flops,
        )

    def count(self, operator: _Operator, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
        """Add one call that returned `out`."""
        self.ops += operator.works
        self.host_reads += operator.reads_scalar
        if operator.sized_by_data or operator.copies:
            self.host_reads += _waits_for_device(operator, args, kwargs, out)
        if operator.multiplies:
            self.low_precision_ops += any(_is_half_matrix(value) for value in args)
        if operator.flops is not None and self.flops is not None:
            self.flops += operator.flops(*args, **kwargs, out_val=out)


def _is_composite(func: Any) -> bool:
    """Whether the dispatcher would run `func` as a composition of others.

    Python decompositions do not count: they may round differently from what runs without a mode.
    """
    has_kernel = getattr(torch._C, "_dispatch_has_kernel_for_dispatch_key", None)
    if (
        has_kernel is None
        or func.namespace != "aten"
        or torch._C.DispatchKey.CompositeImplicitAutograd in func.py_kernels
    ):
        return False
    name = func.name()
    return has_kernel(name, "CompositeImplicitAutograd") and not (
        has_kernel(name, "CPU") or has_kernel(name, "CUDA")
    )


def _flop_formulas() -> dict[Any, Callable[..., float]] | None:
    """Formulas of torch's FlopCounterMode, and those for attention on CPU, which it lacks.

    The mode itself returns NotImplemented from higher order operators and hooks every module, which changes
    results.
    """
    try:
        from torch.utils.flop_counter import flop_registry
    except ImportError:
        return None
    aten: Any = torch.ops.aten
    return {
        **flop_registry,
        aten._scaled_dot_product_flash_attention_for_cpu: _attention_flops,
        aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward_flops,
    }


def _attention_flops(
    query: Any, key: Any, value: Any, *args: Any, out_val: Any = None, **kwargs: Any
) -> float:
    """Scores and weighted sum: two products. [B, H, Sq, D], [B, H, Sk, D], [B, H, Sk, Dv]"""
    pairs = query.shape[0] * query.shape[1] * query.shape[2] * key.shape[2]
    return 2 * pairs * (query.shape[3] + value.shape[3])


def _attention_backward_flops(
    grad_out: Any, query: Any, key: Any, value: Any, *args: Any, out_val: Any = None, **kwargs: Any
) -> float:
    """Scores again, gradients of scores, query and key by D, of weights and value by Dv: five products."""
    pairs = query.shape[0] * query.shape[1] * query.shape[2] * key.shape[2]
    return 2 * pairs * (3 * query.shape[3] + 2 * value.shape[3])


def tensors_in(values: Sequence[Any]) -> Iterator[Any]:
    """Tensors among arguments, also inside lists."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(value)


def _is_half_matrix(value: Any) -> bool:
    half = (torch.float16, torch.bfloat16)
    return isinstance(value, torch.Tensor) and value.dim() >= 2 and value.dtype in half


def _waits_for_device(operator: _Operator, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> bool:
    """Whether the host reads from a device: a copy off it, or a result whose size depends on values there."""
    inputs = list(tensors_in([*args, *kwargs.values()]))
    on_device = [tensor for tensor in inputs if tensor.device.type not in ("cpu", "meta")]
    if operator.copies:
        return bool(on_device) and isinstance(out, torch.Tensor) and out.device.type == "cpu"
    if "index" in operator.name:  # a list of positions has a known length, a mask selects as many as it likes
        return bool(on_device) and any(
            index.dtype in (torch.bool, torch.uint8) for index in tensors_in([args[1]])
        )
    return bool(on_device)
