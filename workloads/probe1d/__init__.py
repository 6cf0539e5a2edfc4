"""One two-parameter logistic regression for every (latent, class) pair of sparse autoencoder activations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfsweep.workloads.probe1d.library import Probes, fit_probes
    from perfsweep.workloads.probe1d.sparse_probes import SparseProbes, fit_sparse_probes

__all__ = ["Probes", "SparseProbes", "fit_probes", "fit_sparse_probes"]


def __getattr__(name: str) -> Any:
    """The library's names, imported when they are asked for: declarations do without torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from perfsweep.workloads.probe1d import library, sparse_probes

    return getattr(library if hasattr(library, name) else sparse_probes, name)
