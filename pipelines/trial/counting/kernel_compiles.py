"""What compiling hand-written Triton kernels took; those that Inductor writes belong to its graphs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

KNOBS = "triton.knobs"
"""The module of Triton that has its listener, since release 3.4."""

_GENERATED = "torch._inductor."
"""Beginning of the modules that Inductor's own kernels are in."""


class KernelCompiles:
    """Counts kernels that Triton compiles, and the seconds; code that is found on disk is none.

    Attributes
    ----------
    count, seconds : of kernels written by hand, compiled since `listen`
    """

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        self._before: Any = None
        self._compilation: Any = None

    def listen(self) -> None:
        """Have Triton tell of each kernel, beside whom it told before; nothing while it is not imported."""
        compilation = getattr(sys.modules.get(KNOBS), "compilation", None)
        if self._compilation is not None or compilation is None or not hasattr(compilation, "listener"):
            return
        self._compilation, self._before = compilation, compilation.listener
        compilation.listener = self._on_compile

    def stop(self) -> None:
        """Leave the listener as it was found, unless another one stands there by now."""
        if self._compilation is not None and self._compilation.listener == self._on_compile:
            self._compilation.listener = self._before
        self._compilation = None

    def _on_compile(
        self, *, src: Any, metadata: Mapping[str, Any], metadata_group: Any, times: Any, cache_hit: bool
    ) -> None:
        if self._before is not None:
            self._before(
                src=src, metadata=metadata, metadata_group=metadata_group, times=times, cache_hit=cache_hit
            )
        module = getattr(getattr(src, "fn", None), "__module__", "") or ""
        if not cache_hit and not module.startswith(_GENERATED):
            self.count += 1
            self.seconds += times.total / 1e6  # microseconds
