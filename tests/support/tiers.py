"""Which cases of a large table belong to `make test`, and which to `make test-workloads`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def tiered(cases: Iterable[Any], quick: Collection[str]) -> list[Any]:
    """Mark all cases ``workloads`` except those with an id in `quick`: one for each path is enough there.

    A case is a ``pytest.param`` with an id, or a tuple whose parts joined by ``=`` are its id.

    Raises
    ------
    ValueError
        An id in `quick` names no case: a renamed level would leave `make test` unseen.
    """
    named = [_named(case) for case in cases]
    if unknown := set(quick) - {case.id for case in named}:
        raise ValueError(f"no case is called {', '.join(sorted(unknown))}: correct the list of quick cases")
    return [case if case.id in quick else _marked(case) for case in named]


def longer(*values: Any) -> list[Any]:
    """Parameters that belong to ``make test-workloads``, to stand beside the one that ``make test`` has."""
    return [pytest.param(value, marks=pytest.mark.workloads) for value in values]


def _named(case: Any) -> Any:
    return case if hasattr(case, "marks") else pytest.param(*case, id="=".join(map(str, case)))


def _marked(case: Any) -> Any:
    return pytest.param(*case.values, id=case.id, marks=[*case.marks, pytest.mark.workloads])
