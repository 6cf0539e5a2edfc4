"""One arm over code versions: what changed since the version before, and what that may rest on."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
from measured import cost, simulated
from rich.console import Console

from pipelines import cli
from pipelines.analysis.versions import Baseline
from pipelines.config.types import DesignConfig
from pipelines.report import history
from pipelines.report.history import direction
from workloads.errors import ConfigError


def version(commit: str, seed: int, fast: float = 0.5, drift: float = 1.0, **fields) -> Baseline:
    """Ten rounds of a reference and an arm on a machine that is `drift` times as slow as usual."""
    rng = np.random.default_rng(seed)
    speeds = {"naive": 1.0, "fast": fast}
    rounds = {
        label: {f"p000-{n}": 1000 * drift * time * math.exp(0.003 * rng.standard_normal()) for n in range(10)}
        for label, time in speeds.items()
    }
    facts = {
        "sweep": f"s-{commit}",
        "workload": "w",
        "unit": "pair",
        "config": "{}",
        "method": "m",
        "data": "d",
    }
    facts |= {"device": "cpu", "torch": "2.13", "commit": commit, "reference": "naive"}
    return Baseline(**{**facts, "rounds": rounds, **fields})


def test_each_version_is_held_against_the_one_before() -> None:
    found = history.history([version("a", 1), version("b", 2, fast=0.6), version("c", 3, fast=0.6)], "fast")
    assert [one.commit for one in found] == ["a", "b", "c"]
    assert found[0].change is None
    assert [direction(one.change, 0.05, relative=False) for one in found[1:] if one.change] == ["slower", ""]
    assert found[1].change is not None and found[1].change.ratio == pytest.approx(1.2, rel=0.01)


def test_a_machine_that_became_slower_moves_the_time_and_not_the_ratio_to_the_reference() -> None:
    change = history.history([version("a", 1), version("b", 2, drift=1.3)], "fast")[1].change
    assert change is not None and change.relative is not None
    assert change.ratio == pytest.approx(1.3, rel=0.01)
    assert change.relative[0] == pytest.approx(1.0, abs=0.01)


def test_on_another_device_only_the_ratio_to_the_reference_is_judged() -> None:
    found = history.history([version("a", 1), version("b", 2, drift=3.0, device="older")], "fast")[1]
    assert found.other_machine and found.change is not None
    assert direction(found.change, 0.05, relative=True) == ""
    assert direction(found.change, 0.05, relative=False) == "slower"
    assert any(text.startswith("device") for text in found.moved)


def test_versions_without_the_arm_are_left_out_and_an_unknown_arm_is_refused() -> None:
    old = version("a", 1).model_copy(update={"rounds": {"naive": version("a", 1).rounds["naive"]}})
    assert [one.commit for one in history.history([old, version("b", 2)], "fast")] == ["b"]
    with pytest.raises(ConfigError, match=r"--arm quick is in none .* choose from: fast, naive"):
        history.history([version("a", 1)], "quick")


def test_versions_that_did_other_work_are_refused() -> None:
    with pytest.raises(ConfigError, match="data differs"):
        history.history([version("a", 1), version("b", 2, data="e")], "fast")


def test_the_command_reads_baselines_and_folders_oldest_first(command, tmp_path, capsys) -> None:
    folder, _ = simulated(
        command(DesignConfig("one_at_a_time", levels={"work": ["single"]}), measure={"rounds": 6}), cost
    )
    kept = tmp_path / "kept.json"
    with pytest.raises(SystemExit) as ended:
        cli.main(["compare", str(folder.path), "--store", str(kept)])
    assert ended.value.code == 0
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        cli.main(["history", str(kept), str(folder.path), "--arm", "work=single"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert "work=single: time per product" in shown and "first" in shown and "+0.0 %" in shown


def test_all_arms_of_the_newest_version_are_shown_by_default() -> None:
    console = Console(file=io.StringIO(), record=True, width=120)
    history.show(console, [version("a", 1), version("b", 2, fast=0.4)], [], 0.05)
    text = console.export_text()
    assert "naive: time per pair" in text and "fast: time per pair" in text and "faster" in text


@pytest.mark.parametrize(("fast", "slower"), [(0.6, True), (0.5, False), (0.4, False)])
def test_history_says_whether_anything_became_slower(fast: float, slower: bool) -> None:
    versions = [version("a", 1), version("b", 2, fast=fast)]
    assert history.show(Console(file=io.StringIO()), versions, ["fast"], 0.05) is slower
