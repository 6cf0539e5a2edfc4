"""A witness may stand wherever a workload names its counters; one that stands nowhere is refused by name."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from pipelines.plan.witnesses import refuse_unknown
from workloads.api import Level, Toggle, Workload
from workloads.errors import ConfigError

INHERITED = "from toys.spinner import Config, Spinner\n\n\nclass Mine(Spinner):\n    Config = Config\n"


@pytest.fixture
def inherited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[Workload]:
    """A user's class that takes its counters from one elsewhere."""
    (tmp_path / "mine_inherited.py").write_text(INHERITED)
    monkeypatch.syspath_prepend(tmp_path)
    return importlib.import_module("mine_inherited").Mine


def test_counters_may_be_those_of_a_base_class_in_another_place(inherited: type[Workload]) -> None:
    refuse_unknown(inherited, inherited.toggles)
    assert any(level.witness for toggle in inherited.toggles for level in toggle.levels)


def test_a_witness_that_no_class_names_is_refused(inherited: type[Workload]) -> None:
    toggle = Toggle("neat", (Level("off"), Level("on", witness="flipz")), "does nothing", "toy")
    with pytest.raises(ConfigError, match=r"neat=on: its witness flipz is no counter; did you mean flips\?"):
        refuse_unknown(inherited, [toggle])
