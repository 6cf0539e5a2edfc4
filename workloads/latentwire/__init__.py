"""LatentWire: soft tokens for frozen language models, from one encoder.

`load_compressor` reads a trained encoder from what a training kept; it is imported when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfsweep.workloads.latentwire.library import load_compressor

__all__ = ["load_compressor"]


def __getattr__(name: str) -> Any:
    if name != "load_compressor":
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from perfsweep.workloads.latentwire.library import load_compressor

    return load_compressor
