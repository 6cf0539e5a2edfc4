"""Proof policies on knowledge graphs: candidates of link-prediction queries are proved, scored, ranked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfsweep.workloads.prover.data.formats import Problem, read_problem
    from perfsweep.workloads.prover.exhaustive import Derivation
    from perfsweep.workloads.prover.library import derive, evaluate, random_policy
    from perfsweep.workloads.prover.policy_file import (
        SavedPolicy,
        policy_from_state_dict,
        read_policy,
        save_policy,
    )
    from perfsweep.workloads.prover.ranking import Proof, Ranks

__all__ = [
    "Derivation",
    "Problem",
    "Proof",
    "Ranks",
    "SavedPolicy",
    "derive",
    "evaluate",
    "policy_from_state_dict",
    "random_policy",
    "read_policy",
    "read_problem",
    "save_policy",
]

_MODULES = {
    "data.formats": ("Problem", "read_problem"),
    "exhaustive": ("Derivation",),
    "library": ("derive", "evaluate", "random_policy"),
    "policy_file": ("SavedPolicy", "policy_from_state_dict", "read_policy", "save_policy"),
    "ranking": ("Proof", "Ranks"),
}


def __getattr__(name: str) -> Any:
    """Import what is asked for, and torch with it: plans read the toggles of this package without."""
    from importlib import import_module

    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
