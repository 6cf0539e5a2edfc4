"""A witness may stand wherever a workload names its counters; one that stands nowhere is refused by name."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from pipelines.plan.witnesses import refuse_unknown
from workloads.api import Level, Toggle, Workload
from workloads.errors import ConfigError


@pytest.fixture(params=["toys.spinner:Spinner", "workloads.digits.workload:Digits"])
def inherited(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> type[Workload]:
    """A user's class that takes its toggles and counters from one elsewhere, or from one of ours."""
    module, _, base = request.param.partition(":")
    own = f"from {module} import {base}\n\n\nclass Mine({base}):\n    pass\n"
    (tmp_path / "mine_inherited.py").write_text(own)
    monkeypatch.delitem(sys.modules, "mine_inherited", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    return importlib.import_module("mine_inherited").Mine


def test_counters_may_be_those_of_a_base_class_in_another_place(inherited: type[Workload]) -> None:
    refuse_unknown(inherited, inherited.toggles)
    assert any(level.witness for toggle in inherited.toggles for level in toggle.levels)


def test_a_witness_that_no_class_names_is_refused(inherited: type[Workload]) -> None:
    toggle = Toggle("neat", (Level("off"), Level("on", witness="flopz")), "does nothing", "toy")
    with pytest.raises(ConfigError, match=r"neat=on: its witness flopz is no counter; did you mean flops\?"):
        refuse_unknown(inherited, [toggle])
