"""Tensors that say they are on a GPU and compute on the host, and what a real one would refuse or wait for.

Every operator passes here. One whose tensors are on two devices is refused as CUDA refuses it; one that makes
the host wait is counted, and refused while `torch.cuda.set_sync_debug_mode("error")` holds.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import Counter
from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

GPU = torch.device("cuda", 0)
HOST = torch.device("cpu")
READ = {"_local_scalar_dense", "is_nonzero", "equal", "allclose"}
BY_MASK = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put"}
CROSSING = {"copy_", "_to_copy"}
SDPA_BY_PRODUCTS = 0
"""The choice of kernels that every device has: plain products and a softmax."""


class Held:
    """Bytes of the largest tensor so far: which of them live at once is not followed."""

    most_bytes = 0


held = Held()


class OnDevice(Tensor):
    """A tensor of the pretended GPU around one of the host."""

    host: Tensor

    @staticmethod
    def __new__(cls, host: Tensor) -> OnDevice:
        made = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            host.size(),
            strides=host.stride(),
            storage_offset=host.storage_offset(),
            dtype=host.dtype,
            layout=host.layout,
            device=GPU,
        )
        made.host = host
        held.most_bytes = max(held.most_bytes, host.nbytes)
        return made

    def __repr__(self, *args: Any, **kwargs: Any) -> str:
        return f"OnDevice({self.host!r})"

    @property
    def data(self) -> Tensor:
        """The same values without a history."""
        return Tensor.data.__get__(self)  # type: ignore[attr-defined]

    @data.setter
    def data(self, values: OnDevice) -> None:
        """Hold other values from now on."""
        Tensor.data.__set__(self, values)  # type: ignore[attr-defined]
        self.host = values.host

    def data_ptr(self) -> int:
        """Where it lies."""
        return self.host.data_ptr()

    def record_stream(self, stream: Any) -> None:
        """Memory is not reused while it is read: there is one stream."""

    def tolist(self) -> Any:
        """Values on the host, which waits for them."""
        return self.cpu().tolist()

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Files hold what any tensor's would; they are read onto the host."""
        return self.host.detach().__reduce_ex__(protocol)

    def __deepcopy__(self, memo: Any) -> Any:
        """A copy on the device."""
        return self.detach().clone().requires_grad_(self.requires_grad)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})


class Pretending(TorchDispatchMode):
    """Makes tensors on the GPU where operators are asked to."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})


class Waits:
    """How often the host waited, by operator, and whether it may."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.mode = "default"
        self.capturing = False
        self.makes_constants = False  # as a compiler does of what is made from values of the host

    def note(self, what: str) -> None:
        """Count a wait.

        Raises
        ------
        RuntimeError
            A graph is captured, or waiting was forbidden: with CUDA's words.
        """
        self.counts[what] += 1
        if self.capturing:
            raise RuntimeError(f"operation not permitted when stream is capturing: {what}")
        if self.mode == "error":
            raise RuntimeError(f"called a synchronizing CUDA operation: {what}")


waits = Waits()


class Listener(Protocol):
    """Hears of every operator on the device; a capture does."""

    def before(self, func: Any, args: Any, kwargs: Any) -> None:
        """An operator is about to run."""
        ...

    def after(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """It has run."""
        ...


listeners: list[Listener] = []

_pinned: set[int] = set()


def run(func: Any, args: Any, kwargs: Any) -> Any:
    """Do one operator on the host, with the devices that it would have."""
    flat, spec = tree_flatten((args, dict(kwargs)))
    name = func.overloadpacket.__name__ if isinstance(func, torch._ops.OpOverload) else str(func)
    ours = any(isinstance(one, OnDevice) for one in flat)
    asked = kwargs.get("device")
    to_gpu = asked is not None and torch.device(asked).type == "cuda"
    if name in ("_pin_memory", "is_pinned"):
        return _pinning(name, flat[0])
    if kwargs.get("pin_memory") and not to_gpu:
        with _below():
            return _pinned_copy(func(*args, **{**kwargs, "pin_memory": False}))
    if not ours and not to_gpu:
        with _below():
            return func(*args, **kwargs)
    if name == "_fused_sdp_choice":
        return SDPA_BY_PRODUCTS
    _refuse_or_wait(func, name, flat, args, kwargs)
    plain = [_on_host(one) for one in flat]
    made_on_gpu = to_gpu or (asked is None and ours)
    if name == "copy_":
        made_on_gpu = isinstance(args[0], OnDevice)
    called, named = tree_unflatten(plain, spec)
    for one in listeners:
        one.before(func, args, kwargs)
    with _below(), _host_generators(flat, plain):
        result = func(*called, **named)
    result = _wrapped(result, plain, flat, made_on_gpu)
    for one in listeners:
        one.after(func, args, kwargs, result)
    return result


@contextlib.contextmanager
def _below() -> Iterator[None]:
    """Operators on the host: no mode sees them."""
    with torch.utils._python_dispatch._disable_current_modes():
        yield


def _on_host(one: Any) -> Any:
    if isinstance(one, OnDevice):
        return one.host
    if isinstance(one, torch.device) and one.type == "cuda":
        return HOST
    if isinstance(one, torch.Generator) and one.device.type == "cuda":
        return torch.Generator()
    return one


@contextlib.contextmanager
def _host_generators(flat: list[Any], plain: list[Any]) -> Iterator[None]:
    """Random numbers of the GPU's generators come from ones of the host in the same state."""
    pairs = [
        (one, other)
        for one, other in zip(flat, plain, strict=True)
        if isinstance(one, torch.Generator) and one is not other
    ]
    for gpu, host in pairs:
        host.set_state(gpu.get_state())
    yield
    for gpu, host in pairs:
        gpu.set_state(host.get_state())


def _wrapped(result: Any, plain: list[Any], flat: list[Any], on_gpu: bool) -> Any:
    """Results on the device; what was changed in place stays the tensor that it was."""
    same = {id(inner): outer for inner, outer in zip(plain, flat, strict=True) if isinstance(outer, OnDevice)}

    def wrap(one: Any) -> Any:
        if not isinstance(one, Tensor):
            return one
        return same.get(id(one)) if id(one) in same else OnDevice(one) if on_gpu else one

    return tree_map(wrap, result)


def _refuse_or_wait(func: Any, name: str, flat: list[Any], args: Any, kwargs: Any) -> None:
    """What CUDA refuses, and what makes its host wait."""
    elsewhere = [
        one for one in flat if isinstance(one, Tensor) and not isinstance(one, OnDevice) and one.dim() > 0
    ]
    ours = any(isinstance(one, OnDevice) for one in flat)
    if name in CROSSING:
        _crossing(name, args, kwargs)
    elif name in BY_MASK:
        places = [one for one in args[1] if one is not None]
        if any(one.dtype in (torch.bool, torch.uint8) for one in places):
            waits.note(name)
        if any(not isinstance(one, OnDevice) for one in places):
            waits.note(f"{name} by places of the host")
        if isinstance(args[0], OnDevice) is False:
            raise _two_devices(name)
    elif ours and elsewhere:
        raise _two_devices(name)
    elif ours and (name in READ or torch.Tag.dynamic_output_shape in func.tags):
        waits.note(name)


def _two_devices(name: str) -> RuntimeError:
    return RuntimeError(
        "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
        f" ({name})"
    )


def _crossing(name: str, args: Any, kwargs: Any) -> None:
    """A copy between host and device waits, unless it was asked not to and the host's side is pinned."""
    if name == "copy_":
        target, source = args[0], args[1]
        free = bool(args[2] if len(args) > 2 else kwargs.get("non_blocking"))
        to_gpu, from_gpu = isinstance(target, OnDevice), isinstance(source, OnDevice)
    else:
        source, free = args[0], bool(kwargs.get("non_blocking"))
        from_gpu, asked = isinstance(source, OnDevice), kwargs.get("device")
        to_gpu = from_gpu if asked is None else torch.device(asked).type == "cuda"
    if to_gpu == from_gpu or (to_gpu and waits.makes_constants):
        return
    if not free or (to_gpu and not is_pinned(source) and waits.capturing):
        waits.note("copy to the device" if to_gpu else "copy to the host")


def _pinning(name: str, tensor: Tensor) -> Any:
    if name == "is_pinned":
        return is_pinned(tensor)
    with _below():
        return _pinned_copy(tensor)


def _pinned_copy(tensor: Tensor) -> Tensor:
    pinned = tensor.clone()
    address = pinned.untyped_storage().data_ptr()
    _pinned.add(address)
    weakref.finalize(pinned.untyped_storage(), _pinned.discard, address)
    return pinned


def is_pinned(tensor: Tensor) -> bool:
    """Whether `tensor` lies in memory of the host that was pinned here."""
    return not isinstance(tensor, OnDevice) and tensor.untyped_storage().data_ptr() in _pinned
