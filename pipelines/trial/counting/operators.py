"""What is called under a dispatch mode: operators, host reads, FLOPs, products in 16 bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
        self._known: dict[Any, _Operator | None] = {}
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
        from torch.utils._python_dispatch import TorchDispatchMode

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

    def operator(self, func: Any) -> _Operator | None:
        """What is known of `func`; None for a higher order operator."""
        if func not in self._known:
            self._known[func] = self._look_up(func)
        return self._known[func]

    def _look_up(self, func: Any) -> _Operator | None:
        import torch

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
    import torch

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
    import torch

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


def _tensors(values: Sequence[Any]) -> Iterator[Any]:
    """Tensors among arguments, also inside lists."""
    import torch

    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def _is_half_matrix(value: Any) -> bool:
    import torch

    half = (torch.float16, torch.bfloat16)
    return isinstance(value, torch.Tensor) and value.dim() >= 2 and value.dtype in half


def _waits_for_device(operator: _Operator, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> bool:
    """Whether the host reads from a device: a copy off it, or a result whose size depends on values there."""
    import torch

    inputs = list(_tensors([*args, *kwargs.values()]))
    on_device = [tensor for tensor in inputs if tensor.device.type not in ("cpu", "meta")]
    if operator.copies:
        return bool(on_device) and isinstance(out, torch.Tensor) and out.device.type == "cpu"
    if "index" in operator.name:  # a list of positions has a known length, a mask selects as many as it likes
        return bool(on_device) and any(
            index.dtype in (torch.bool, torch.uint8) for index in _tensors([args[1]])
        )
    return bool(on_device)
