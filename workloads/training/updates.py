"""Implementations of an optimiser's update."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from perfsweep.workloads.api import LevelValue
from perfsweep.workloads.errors import UnsupportedHere

UPDATES: dict[str, dict[str, Any]] = {
    # PyTorch's default is `foreach` on CUDA and the loop elsewhere; the baseline is the loop everywhere.
    "default": {"foreach": False, "fused": False},
    "foreach": {"foreach": True, "fused": False},
    "fused": {"foreach": False, "fused": True},
}
"""Options of an optimiser of torch.optim for each level of the toggle `optimizer`."""


def optimizer_of(
    make: Callable[..., Optimizer], parameters: Iterable[Tensor | dict[str, Any]], level: LevelValue
) -> Optimizer:
    """Make the optimiser with the implementation of `level`; options that it does not have are left out.

    Raises
    ------
    UnsupportedHere
        The optimiser has no such implementation, or none for these parameters on their device.
    """
    values, options = list(parameters), dict(UPDATES[str(level)])
    while True:
        try:
            return make(values, **options)
        except TypeError as error:
            unknown = _UNKNOWN.search(str(error))
            if unknown is None or unknown[1] not in options:
                raise
            if options.pop(unknown[1]):
                raise UnsupportedHere(
                    f"optimizer={level}: {unknown[1]} is no option of this optimiser"
                ) from error
        except RuntimeError as error:
            if not options.get("fused") or "fused" not in str(error):
                raise
            raise UnsupportedHere(f"optimizer={level}: {str(error).splitlines()[0]}") from error


_UNKNOWN = re.compile(r"unexpected keyword argument '(foreach|fused)'")
