"""A search as one sweep: how it grows by a proposal, and what an arm costs by rounds of several packs."""

from __future__ import annotations

import math
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from measured import SimulatedLaunch
from omegaconf import OmegaConf
from rich.console import Console
from toys.tunable import Config, Tunable

from perfsweep.pipelines.config.types import ClusterConfig, MeasureConfig, SweepCommand
from perfsweep.pipelines.execution import launch
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.plan.arms import Space
from perfsweep.pipelines.plan.designs import PlannedEffect
from perfsweep.pipelines.search.measurements import PackBroke, SearchSweep, extended, log_times
from perfsweep.pipelines.statistics.log_ratios import Cell
from perfsweep.pipelines.store.records import Manifest
from perfsweep.workloads.api import Device, Levels

SPACE = Space(Tunable.toggles, Config())


def alone(rounds: int = 3) -> Manifest:
    """The reference alone, with nothing to measure yet."""
    command = SweepCommand(workload={"name": "toys.tunable:Tunable"}, measure=MeasureConfig(rounds=rounds))
    planned = plan.single_arm(command, Device())
    sweep = planned.sweep.model_copy(
        update={"references": {"naive": planned.arms[0].id}, "measure": command.measure}
    )
    return planned.model_copy(update={"sweep": sweep, "packs": ()})


def candidate(base: dict | None = None, **levels: object) -> PlannedEffect:
    whole = SPACE.complete(levels)  # type: ignore[arg-type]
    pairs = ((whole, SPACE.complete(base or {})),)
    return PlannedEffect("arms", SPACE.label(whole), "vs naive", pairs, "naive")


def labels(manifest: Manifest, pack: int) -> set[str]:
    return {manifest.arm(arm).label for arm in manifest.packs[pack].arms}


def test_arms_and_effects_are_there_once_and_the_reference_is_no_effect_of_its_own() -> None:
    again = extended(alone(), [candidate(), candidate(fuse="on"), candidate(fuse="on")], SPACE, 8)
    assert [arm.label for arm in again.arms] == ["baseline", "fuse=on"]
    assert len(again.effects) == 1
    whole = extended(again, [candidate(fuse="on")], SPACE, 8)
    assert (whole.arms, whole.effects) == (again.arms, again.effects)
    assert labels(whole, 1) == {"baseline", "fuse=on"}


def cost(levels: Levels) -> float:
    return (0.5 if levels["fuse"] == "on" else 1.0) * (2.0 if levels["narrow"] == "on" else 1.0)


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., SearchSweep]:
    """Begins a search of a few rounds on a simulated machine."""

    def begin(iterations: float | None = None, rounds: int = 3, **machine: object) -> SearchSweep:
        simulated = SimulatedLaunch(cost, noise=0.001, spikes=0.0, **machine)  # type: ignore[arg-type]
        monkeypatch.setattr(launch, "launch", simulated)
        measure = MeasureConfig(rounds=20, precision=0.01, budget_s=60.0, placebo=2, repeats=2, target=None)
        command = SweepCommand(
            workload={"name": "toys.tunable:Tunable"},
            measure=measure,
            cluster=ClusterConfig(executor="inprocess"),
            runs=str(tmp_path / "runs"),
        )
        return SearchSweep(Console(file=StringIO()), command, OmegaConf.create({}), rounds, {}, iterations)

    return begin


def test_what_was_measured_is_observed_against_the_reference(begun) -> None:
    sweep = begun(peak_of=lambda levels: 500 if levels["fuse"] == "on" else 1000)
    begins = sweep.manifest
    assert (begins.sweep.name, begins.sweep.references) == ("tunable-???", {"naive": begins.arms[0].id})
    assert (begins.sweep.measure.rounds, begins.packs) == (3, ())
    sweep.measure([candidate(fuse="on"), candidate(narrow="on")])
    assert sweep.trials == 9
    found = {sweep.manifest.arm(arm).label: one for arm, one in sweep.observations().items()}
    assert found["baseline"].value == 0.0
    assert found["fuse=on"].value == pytest.approx(math.log(0.5), abs=0.01)
    assert found["narrow=on"].value == pytest.approx(math.log(2.0), abs=0.01)
    assert (found["fuse=on"].peak_bytes, found["narrow=on"].peak_bytes) == (500, 1000)
    assert 0 < found["fuse=on"].variance < 1e-4


def test_what_is_there_is_not_measured_again(begun) -> None:
    sweep = begun(rounds=2)
    sweep.measure([candidate(fuse="on")])
    assert launch.launch.timed == 4  # type: ignore[attr-defined]
    again = begun(rounds=2)
    again.measure([candidate(fuse="on")])
    assert launch.launch.timed == 0  # type: ignore[attr-defined]
    assert len(again.observations()) == 2


def test_arms_that_compute_something_else_or_have_no_round_are_ruled_out(begun) -> None:
    sweep = begun(wrong=lambda levels: levels["fuse"] == "on")
    sweep.measure([candidate(fuse="on")])
    sweep.manifest = extended(sweep.manifest, [candidate(narrow="on")], sweep.space, 8)
    found = {sweep.manifest.arm(arm).label: one for arm, one in sweep.observations().items()}
    assert (found["fuse=on"].value, found["fuse=on"].outcome) == (None, "different")
    waiting = found["narrow=on"]
    assert (waiting.value, waiting.outcome, waiting.reason) == (None, "unfinished", "no finished round")


@pytest.mark.parametrize("iterations", [10.0, 1e6])
def test_what_is_paid_once_counts_the_less_the_more_iterations_follow(begun, iterations: float) -> None:
    sweep = begun(iterations=iterations, compile_of=lambda levels: 30.0 if levels["fuse"] == "on" else 0.0)
    sweep.measure([candidate(fuse="on")])
    found = sweep.observations()[sweep.arm(SPACE.complete({"fuse": "on"}))]
    # A trial does 10 iterations in a second, or half of one.
    naive, fused = iterations * 0.1, 30 + iterations * 0.05
    assert found.value == pytest.approx(math.log(fused / naive), abs=0.15)


def test_a_pack_that_breaks_off_ends_the_search_with_the_end_of_its_log(begun, monkeypatch) -> None:
    sweep = begun()
    monkeypatch.setattr(launch, "launch", lambda *arguments: {"p000": "killed"})
    with pytest.raises(PackBroke, match=r"pack p000 broke off; the end of .*p000/log.txt:\nkilled"):
        sweep.measure([candidate(fuse="on")])


def cells(pack: str, **times: list[float | None]) -> list[Cell]:
    """Times of arms by round; None where an arm was not measured in one."""
    return [
        Cell(pack, number, None, arm, time)
        for arm, every in times.items()
        for number, time in enumerate(every)
        if time is not None
    ]


def test_the_variance_follows_the_scatter_of_rounds() -> None:
    up, down = math.exp(0.1), math.exp(-0.1)
    found = log_times(cells("p000", ref=[1, 1, 1, 1], a=[up, down, up, down]), "ref")
    # Residuals of 0.05 in eight cells, of which 1 + 4 coefficients were fitted: three are free.
    assert found["a"].value == pytest.approx(0.0, abs=1e-9)
    assert found["a"].variance == pytest.approx(8 * 0.05**2 / 3 / 4)


def test_arms_have_times_as_far_as_rounds_join_them_to_the_reference_from_arm_to_arm() -> None:
    chain = [*cells("p001", a=[4.0, 4.0], b=[8.0, 8.0]), *cells("p002", ref=[1.0, 1.0], a=[2.0, 2.0])]
    apart = cells("p003", c=[5.0, 5.0], d=[10.0, 10.0])  # where the reference failed in every round
    found = log_times([*chain, *apart], "ref")
    assert {arm: time.value for arm, time in found.items()} == pytest.approx(
        {"ref": 0.0, "a": math.log(2), "b": math.log(4)}, abs=1e-9
    )
    assert log_times(cells("p000", ref=[1, 1]), "ref") == {}, "compared with nothing"
