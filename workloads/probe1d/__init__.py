"""One two-parameter logistic regression for every (latent, class) pair of sparse autoencoder activations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfsweep.workloads.probe1d.library import Probes, fit_probes

__all__ = ["Probes", "fit_probes"]


def __getattr__(name: str) -> Any:
    """The library's names, imported when they are asked for: declarations do without torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from perfsweep.workloads.probe1d import library

    return getattr(library, name)
