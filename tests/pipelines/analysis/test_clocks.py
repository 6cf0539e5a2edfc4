"""Which clock a sweep is judged by: chosen from what disturbed its trials, never from what the clocks say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from measured import change, compared, cost, simulated

from perfsweep.pipelines.analysis.compare import Comparison
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.report.trade_off import trade_off
from perfsweep.pipelines.statistics.clocks import Clock, Conditions, choose_clock
from perfsweep.pipelines.statistics.verdicts import ReasonCode, Verdict
from perfsweep.pipelines.store.options import ReportConfig
from perfsweep.pipelines.store.records import Manifest, SweepFolder

QUIET = Conditions("naive", crowded=False, alone=True)
CROWDED = Conditions("naive", crowded=True, alone=True)
THREADED = Conditions("workers=2", crowded=False, alone=False)
SLEEPING = Conditions("sleep=1", crowded=False, alone=False)


@pytest.mark.parametrize(
    ("trials", "clock", "words"),
    [
        ([QUIET] * 8, Clock.WALL, ""),
        ([QUIET] * 7 + [CROWDED], Clock.WALL, ""),
        ([QUIET] * 6 + [CROWDED] * 2, Clock.CPU, "others had the cores of 2 of 8 timing trials"),
        ([CROWDED] * 7 + [THREADED], Clock.WALL, "workers=2 uses more than one thread, or waits"),
        ([CROWDED] * 7 + [SLEEPING, THREADED], Clock.WALL, "sleep=1 and 1 more use more than one thread"),
        ([], Clock.WALL, ""),
    ],
)
def test_cpu_time_is_believed_where_others_had_the_cores_and_every_arm_computes_alone(
    trials: list[Conditions], clock: Clock, words: str
) -> None:
    choice = choose_clock(trials)
    assert choice.clock is clock
    assert words in choice.reason and bool(words) == bool(choice.reason)


Compared = Callable[..., Comparison]


@pytest.fixture
def crowded(command) -> Compared:
    """A sweep in which wall time says nothing and CPU time halves; keywords change every record."""

    def run(arms: int = 2, columns: Sequence[str] = (), **fields: object) -> Comparison:
        levels = {"work": ["single"]} if arms == 2 else {"work": ["single"], "slab": [2]}
        sweep = command(DesignConfig("one_at_a_time", levels=levels), measure={"rounds": 10})
        sweep.report = ReportConfig(list(columns))
        folder, manifest = simulated(sweep, lambda levels: 1.0, noise=0.2)
        return compared(*with_conditions(folder, manifest, **fields))

    return run


def with_conditions(
    folder: SweepFolder, manifest: Manifest, **fields: object
) -> tuple[SweepFolder, Manifest]:
    for arm in manifest.arms:
        for number, record in enumerate(timed(folder, arm.id)):
            cpu_ns = round(cost(arm.levels) * 1e8) + 1000 * number
            change(record, region_cpu_ns=cpu_ns, **fields)
    return folder, manifest


def timed(folder: SweepFolder, arm: str) -> list[Path]:
    return sorted(folder.path.glob(f"trials/{arm}/p*-r*/record.json"))


BY_OTHERS = {"displaced": True, "disturbed": ["others had its core for 40.0% of the time"]}


def test_a_displaced_sweep_is_judged_by_cpu_time_and_says_why(crowded: Compared) -> None:
    comparison = crowded(alone=True, **BY_OTHERS)
    (effect,) = comparison.effects
    assert comparison.clock is Clock.CPU
    assert (effect.verdict, effect.ratio) == (Verdict.FASTER, pytest.approx(0.5, rel=0.01))
    assert effect.wall is not None and effect.wall.verdict is Verdict.HELD_BACK
    assert any(note.startswith("judged by CPU time: ") for note in comparison.notes)


def test_columns_of_wall_time_say_that_others_had_a_part_of_it(crowded: Compared) -> None:
    said = "from wall time, of which others had a part, though verdicts are by CPU time"
    quiet = crowded(columns=["cost"])
    disturbed = crowded(alone=True, columns=["energy", "cost", "p99", "stall"], **BY_OTHERS)
    assert f"cost, p99, stall: {said}" in disturbed.notes
    for comparison in (quiet, crowded(alone=True, columns=["energy"], **BY_OTHERS)):
        assert not any(said in note for note in comparison.notes)


def test_the_trade_off_weighs_times_of_the_clock_that_judges(crowded: Compared) -> None:
    by_wall, by_cpu = (trade_off(one) for one in (crowded(), crowded(alone=True, **BY_OTHERS)))
    assert by_cpu is not None and by_wall is not None
    half, whole = by_cpu.choices
    assert whole.ns_per_unit == pytest.approx(2 * half.ns_per_unit, rel=0.01) and whole.dominated
    assert (by_cpu.clock, by_wall.clock) == (Clock.CPU, Clock.WALL)
    assert by_wall.choices[0].ns_per_unit == pytest.approx(1e7, rel=0.5)


def test_cpu_time_is_a_second_verdict_where_nothing_displaced_the_trials(crowded: Compared) -> None:
    comparison = crowded(alone=True)
    (effect,) = comparison.effects
    assert comparison.clock is Clock.WALL
    assert effect.verdict is Verdict.UNDECIDED
    assert effect.cpu is not None
    assert (effect.cpu.verdict, effect.cpu.ratio) == (Verdict.FASTER, pytest.approx(0.5, rel=0.01))
    assert not any(note.startswith("judged by") for note in comparison.notes)


def test_nothing_is_said_where_every_trial_was_disturbed_and_cpu_time_cannot_stand_in(
    crowded: Compared,
) -> None:
    comparison = crowded(alone=False, **BY_OTHERS)
    (effect,) = comparison.effects
    assert (effect.verdict, effect.code) == (Verdict.HELD_BACK, ReasonCode.ALL_DISTURBED)
    assert "every trial" in effect.note
    assert any("judged by wall time although" in note for note in comparison.notes)


def test_others_on_all_cores_do_not_silence_what_cpu_time_tells(crowded: Compared) -> None:
    """Others that give way, as under `nice`, take no core from a trial, and yet fill the machine."""
    comparison = crowded(alone=True, disturbed=["other processes used 1.8 of 2 cores"])
    (effect,) = comparison.effects
    assert comparison.clock is Clock.CPU
    assert (effect.verdict, effect.ratio) == (Verdict.FASTER, pytest.approx(0.5, rel=0.01))


def test_heat_holds_a_verdict_back_too_and_cpu_time_does_not_stand_in_for_it(crowded: Compared) -> None:
    (effect,) = crowded(alone=True, disturbed=["GPU-1: power brake"]).effects
    assert effect.verdict is Verdict.HELD_BACK


def test_one_undisturbed_trial_is_enough_to_judge(command) -> None:
    sweep = command(DesignConfig("one_at_a_time", levels={"work": ["single"]}), measure={"rounds": 10})
    folder, manifest = with_conditions(*simulated(sweep, cost), alone=False, **BY_OTHERS)
    change(timed(folder, manifest.arms[0].id)[0], disturbed=[])
    (effect,) = compared(folder, manifest).effects
    assert effect.verdict is Verdict.FASTER


def test_the_second_verdict_speaks_for_arms_that_compute_alone_though_the_sweep_holds_theirs_back(
    command,
) -> None:
    levels = {"work": ["single"], "slab": [2]}
    sweep = command(DesignConfig("one_at_a_time", levels=levels), measure={"rounds": 10})
    folder, manifest = with_conditions(*simulated(sweep, cost), alone=True, **BY_OTHERS)
    threaded = next(arm for arm in manifest.arms if arm.levels["slab"] == 2)
    for record in timed(folder, threaded.id):
        change(record, alone=False)
    work, slab = compared(folder, manifest).effects
    assert work.verdict is slab.verdict is Verdict.HELD_BACK
    assert work.cpu is not None and work.cpu.verdict is Verdict.FASTER
    assert (work.alone, slab.alone) == (True, False)


def test_a_mere_look_calls_nothing_and_rules_on_no_claim_of_time(command) -> None:
    design = DesignConfig("one_at_a_time", levels={"work": ["single"]})
    (effect,) = compared(*simulated(command(design, measure={"rounds": 8, "look": True}), cost)).effects
    assert (effect.verdict, effect.code) == (Verdict.HELD_BACK, ReasonCode.ONLY_A_LOOK)
    assert effect.ratio == pytest.approx(0.5, rel=0.05)
    assert [ruled.ruling.value for ruled in effect.rulings] == ["undecided"]
