"""Levels that draw at random: paired seeds, as many as are needed, decide if they are equivalent."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.analysis import collect, compare
from pipelines.analysis.judge import EffectResult
from pipelines.config.types import DesignConfig
from pipelines.execution import launch
from pipelines.execution.pack import PackRun
from pipelines.parity.comparison import ParityVerdict
from pipelines.plan import plan
from pipelines.statistics.verdicts import Verdict
from pipelines.store.records import SweepFolder
from workloads.api import Device


def measured(workload: str, runs: Path) -> dict[str, tuple[EffectResult, int]]:
    """By level of the dice: the effect, and with how many seeds its evidence was computed."""
    from pipelines.config.types import ClusterConfig, MeasureConfig, SweepCommand, SweepConfig

    command = SweepCommand(
        workload={"name": workload},
        measure=MeasureConfig(
            rounds=2,
            iterations=4,
            warmup_max=5,
            evidence_iterations=2,
            counting_iterations=1,
            timeout_s=60,
            repeats=0,
        ),
        cluster=ClusterConfig(executor="inprocess"),
        sweep=SweepConfig(name="dice", designs=[DesignConfig("one_at_a_time")]),
        runs=str(runs),
    )
    manifest = plan.make_plan(command, Device())
    folder = SweepFolder(Path(command.runs) / manifest.sweep.name)
    launch.prepare(folder, manifest, "")
    PackRun(folder, manifest, manifest.packs[0]).run()
    effects = compare.compare(folder, manifest, collect.collect(folder, manifest)).effects

    def seeds(arm: str) -> int:
        return sum(stage.startswith("evidence") for _, _, stage, _ in folder.trial_dirs(arm))

    found = {one.effect.level: (one, seeds(one.effect.pairs[0][0])) for one in effects}
    found["own"] = (effects[0], seeds(effects[0].effect.pairs[0][1]))
    return found


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[EffectResult, int]]:
    return measured("toys.dice:Dice", tmp_path_factory.mktemp("runs"))


def parity_of(results: dict, level: str) -> ParityVerdict:
    parity = results[level][0].parity
    assert parity is not None
    return parity.verdict


@pytest.mark.slow
def test_noise_far_below_the_margin_is_equivalent_after_the_planned_seeds(results) -> None:
    assert parity_of(results, "fair") is ParityVerdict.EQUIVALENT
    assert results["fair"][1] == 5


@pytest.mark.slow
def test_a_shift_beyond_the_margin_is_different_and_never_ranked(results) -> None:
    assert parity_of(results, "biased") is ParityVerdict.DIFFERENT
    assert results["biased"][0].verdict is Verdict.DIFFERENT
    assert results["biased"][1] == 5
    assert "score moves by +5" in results["biased"][0].note


@pytest.mark.slow
def test_noise_above_the_margin_gets_three_more_seeds_and_then_stays_unchecked(results) -> None:
    assert parity_of(results, "wide") is ParityVerdict.UNCHECKED
    assert results["wide"][1] == 8
    assert "pairs would decide" in results["wide"][0].note


@pytest.mark.slow
def test_no_more_seeds_are_drawn_than_planned_where_none_could_tell(tmp_path: Path) -> None:
    found = measured("toys.dice:Rolls", tmp_path)
    assert parity_of(found, "wide") is ParityVerdict.UNCHECKED
    assert "no check is on a number that seeds could be compared by" in found["wide"][0].note
    assert found["wide"][1] == 5


@pytest.mark.slow
def test_equal_draws_are_identical(results) -> None:
    assert parity_of(results, "same") is ParityVerdict.IDENTICAL


@pytest.mark.slow
def test_the_reference_has_the_seeds_of_the_arm_that_needs_most_and_each_once(results) -> None:
    assert results["own"][1] == 8 + 1, "and one repeat, since an arm is different"


def test_levels_that_draw_nothing_need_no_further_seed(command) -> None:
    toy = command(DesignConfig("one_at_a_time", levels={"work": ["single"]}))
    manifest = plan.make_plan(toy, Device())
    folder = SweepFolder(Path(toy.runs) / manifest.sweep.name)
    launch.prepare(folder, manifest, "")
    PackRun(folder, manifest, manifest.packs[0]).run()
    assert not list(folder.path.glob("trials/*/p000-evidence1-*"))
