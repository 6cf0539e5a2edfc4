"""What a masked pass is told about each module, and the checks of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from workloads.spd.maths.components import Operands


@dataclass
class SiteMask:
    """How one module computes in a masked pass.

    Attributes
    ----------
    mask : m [..., C] in [0, 1]; None for all ones
    source : s [..., C]; where given, `mask` holds importances ci, and m = ci + (1 - ci) s is made inside the
        product
    delta : mu [...] in [0, 1]; None where the delta takes no part
    route : r [...] bool, positions that run through components; None for all
    rows : the routed positions as numbers [R] into the flattened ones. `mask` and `delta` then hold these
        rows only, [R, C] and [R], and the module multiplies nothing else
    """

    mask: Tensor | None
    delta: Tensor | None = None
    route: Tensor | None = None
    rows: Tensor | None = None
    source: Tensor | None = None


@dataclass
class Call:
    """State of one pass.

    Attributes
    ----------
    masks, operands : by module, for the modules that are replaced
    inputs : takes what modules read, in execution order; None where nobody asked
    """

    masks: Mapping[str, SiteMask] = field(default_factory=dict)
    operands: Mapping[str, Operands] = field(default_factory=dict)
    inputs: dict[str, Tensor] | None = None


Check = Callable[[Tensor], None]


def check_waiting(mask: Tensor) -> None:
    """Refuse values outside [0, 1]; the host waits twice, once for each end.

    The upstream project compares ``t.all() <= 1``, which is true of any mask. What is no number passes: it
    makes a loss that is none, which is refused with its name and step.

    Raises
    ------
    ValueError
        A value is out of range.
    """
    if bool((mask < 0).any()) or bool((mask > 1).any()):
        raise ValueError("a mask must lie in [0, 1]; its sources or importances are out of range")


def check_on_device(mask: Tensor) -> None:
    """The same test where the device finds out by itself: a violation ends the program later, and nobody
    waits."""
    inside = ~((mask < 0) | (mask > 1)).any()
    torch._assert_async(inside, "a mask must lie in [0, 1]")  # pyright: ignore[reportPrivateImportUsage]


def check_nothing(mask: Tensor) -> None:
    """No test."""


CHECKS: dict[str, Check] = {"sync": check_waiting, "async_assert": check_on_device, "off": check_nothing}
