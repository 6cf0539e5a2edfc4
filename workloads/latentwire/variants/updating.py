"""The optimiser's kernels, and a host that waits for no number."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from perfsweep.workloads import toggles as shared
from perfsweep.workloads.api import Toggle
from perfsweep.workloads.latentwire.variants.part import UPDATED, Part
from perfsweep.workloads.variant import Variant, choices

if TYPE_CHECKING:
    from torch import Tensor


class UpdateKind(Part):
    """All parameters at once."""

    @property
    def update_kind(self) -> str:
        """How the optimiser updates."""
        return str(self.levels["optimizer"])


class Late(Part):
    """Numbers stay on the device, and are copied together every `log_every` steps.

    Rows of the log arrive up to that many steps late, and nothing waits in between: the fused optimiser skips
    updates on the device, and the others read one flag a step.
    """

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.waiting: list[dict[str, float]] = []

    def checked(self, terms: list[Tensor]) -> None:
        """Read no term."""

    def known(self, value: Tensor) -> Tensor | float:
        """A number [] of the device, where it is."""
        return value

    def norm(self, gradients: list[Tensor]) -> Tensor:
        """The norm [] over all gradients, on the device."""
        import torch

        norms = torch._foreach_norm(gradients)  # type: ignore[attr-defined]
        return torch.linalg.vector_norm(torch.stack(norms))

    def take_step(self, broken: Tensor) -> None:
        """Update, unless the gradient is `broken` []."""
        if self.update_kind != "fused":
            super().take_step(broken)
            return
        self.optimizer.found_inf = broken  # type: ignore[attr-defined]
        self.optimizer.step()

    def push(self, values: Tensor, host: Mapping[str, float]) -> None:
        """Metrics of a step: `values` [8] into the ring, which is handed over when it is full."""
        self.ring[len(self.waiting)].copy_(values)
        self.waiting.append(dict(host))
        if len(self.waiting) == self.config.log_every:
            self.flush()

    @cached_property
    def ring(self) -> Tensor:
        """Metrics of steps [log_every, 8]."""
        import torch

        from perfsweep.workloads.latentwire.training.updates import NAMES

        shape = (self.config.log_every, len(NAMES))
        return torch.zeros(shape, device=self.device, dtype=self.shape.dtype)

    def flush(self) -> None:
        """Copy what the ring holds and hand it over."""
        if not self.waiting:
            return
        self.counts["syncs"] += 1
        rows, sample = self.ring[: len(self.waiting)].cpu().tolist(), self.monitor.sample()
        for read, host in zip(rows, self.waiting, strict=True):
            self.write(read, {**host, **sample})
        self.waiting = []


VARIANTS = (
    Variant(
        shared.optimizer(every={"bounds": UPDATED, "witness": "ops"}, source="Quick win 4"), others=UpdateKind
    ),
    Variant(
        Toggle(
            "sync",
            choices("chatty", "late", witness="syncs"),
            "read metrics in every step, or late",
            "Monitoring",
        ),
        {"late": Late},
    ),
)
