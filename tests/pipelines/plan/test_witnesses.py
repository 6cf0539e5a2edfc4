"""A witness may stand wherever a workload names its counters; one that stands nowhere is refused by name."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from perfsweep.pipelines.plan.foreseen import refuse_unknown
from perfsweep.workloads.api import Level, Toggle, Workload
from perfsweep.workloads.errors import ConfigError


@pytest.fixture(params=["toys.spinner:Spinner", "perfsweep.workloads.digits.workload:Digits"])
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


def test_a_witness_that_no_class_names_is_refused(inherited: type[Workload]) -> None:
    toggle = Toggle("neat", (Level("off"), Level("on", witness="flopz")), "does nothing", "toy")
    with pytest.raises(ConfigError, match=r"neat=on: its witness flopz is no counter; did you mean flops\?"):
        refuse_unknown(inherited, [toggle])


OWN = """
from toys.spinner import Spinner
from perfsweep.workloads.api import Level, Toggle


class Mine(Spinner):
    toggles = (*Spinner.toggles, Toggle("shy", (Level("off"), Level("on", witness="phantom")), "no act"))
    anything = ".*"

    def counters(self, kernels=0):
        slab = self.toggles
        return {f"slab_{slab}.calls": 1, "plain": 2} | dict(kept=3) | super().counters()
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[Workload]:
    """A user's class with counters of several spellings."""
    (tmp_path / "mine_counting.py").write_text(OWN)
    monkeypatch.delitem(sys.modules, "mine_counting", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    return importlib.import_module("mine_counting").Mine


def witnessed(witness: str | None) -> Toggle:
    return Toggle("neat", (Level("off"), Level("on", witness=witness)), "does nothing")


def test_a_counter_may_be_named_however_a_source_names_it(mine: type[Workload]) -> None:
    names = ("plain", "kept", "kernels", "slab_7.calls", "slab_.calls", "products", "ops")
    refuse_unknown(mine, [witnessed(name) for name in (*names, None)])
    for name in names:
        with pytest.raises(ConfigError, match=f"its witness {name}x is no counter"):
            refuse_unknown(mine, [witnessed(name), witnessed(f"{name}x")])


def test_a_name_that_stands_for_something_else_is_no_counter(mine: type[Workload]) -> None:
    for witness in ("phantom", "slab_7xcalls", "slab_7.calls_more", "anything else"):
        with pytest.raises(ConfigError, match=rf"^toggles\.neat=on: its witness {witness} is no counter; .*"):
            refuse_unknown(mine, [witnessed("plain"), witnessed(witness)])
