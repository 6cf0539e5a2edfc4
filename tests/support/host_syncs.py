"""What would make a host wait for its GPU, or end a capture, seen on a CPU: by operator and by function.

A dispatch mode sees values read and shapes that depend on values; on a CPU, a copy to the host and a tensor
made from host values are no operators, and only functions tell of them.
"""

from __future__ import annotations

import traceback
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

READ = {"_local_scalar_dense", "is_nonzero", "equal", "allclose"}
BY_MASK = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put"}
TO_HOST = {"cpu", "numpy", "tolist", "__array__"}
FROM_HOST = {"tensor", "as_tensor", "from_numpy"}
HERE = Path(__file__)
LIBRARIES = (str(Path(torch.__file__).parent), str(HERE))


class HostSyncs:
    """Collects, while entered, what would wait: each as words and the line of ours that did it.

    Parameters
    ----------
    from_host : tensors made from host values count: a capture refuses their copies, a compiler makes them
        constants
    """

    def __init__(self, from_host: bool = True) -> None:
        self.from_host = from_host
        self.found: list[str] = []
        self._stack = ExitStack()

    def __enter__(self) -> HostSyncs:
        self._stack.enter_context(_Functions(self))
        self._stack.enter_context(_Operators(self))
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def note(self, what: str) -> None:
        frames = [one for one in traceback.extract_stack() if not one.filename.startswith(LIBRARIES)]
        place = f" in {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
        self.found.append(what + place)


class _Operators(TorchDispatchMode):
    supports_higher_order_operators = True

    def __init__(self, syncs: HostSyncs) -> None:
        super().__init__()
        self._syncs = syncs

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if isinstance(func, torch._ops.OpOverload):
            name = func.overloadpacket.__name__
            if name in BY_MASK:
                waits = any(one is not None and one.dtype in (torch.bool, torch.uint8) for one in args[1])
            else:
                waits = name in READ or torch.Tag.dynamic_output_shape in func.tags
            if waits:
                self._syncs.note(name)
        return func(*args, **(kwargs or {}))


class _Functions(TorchFunctionMode):
    def __init__(self, syncs: HostSyncs) -> None:
        super().__init__()
        self._syncs = syncs

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        to_cpu = name == "to" and "cpu" in (str((kwargs or {}).get("device")), *map(str, args[1:2]))
        # What a library keeps on the host on purpose travels nowhere.
        made = name in FROM_HOST and str((kwargs or {}).get("device")) != "cpu"
        if name in TO_HOST or to_cpu or (made and self._syncs.from_host):
            self._syncs.note(f"{name}()")
        return func(*args, **(kwargs or {}))
