"""All winners of a sweep at once: which sweep measures them, and where its results belong to the first."""

from __future__ import annotations

import dataclasses
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from measured import compared, simulated

from perfsweep.pipelines.analysis.compare import Comparison
from perfsweep.pipelines.config.types import DesignConfig, SweepCommand
from perfsweep.pipelines.measured import LEAST_S, second_sweep, with_together
from perfsweep.pipelines.report.sentences import conclusions
from perfsweep.pipelines.store.records import Manifest, SweepFolder
from perfsweep.workloads.api import Levels

DESIGN = DesignConfig("one_at_a_time", levels={"work": ["single"], "slab": [4, 8], "sign": ["wrong"]})
SHARE = {1: 1.0, 4: 0.8, 8: 0.7}


def cost(levels: Levels) -> float:
    """Half the work gains most, the larger slab second; with half the work the slab gains nothing more."""
    seconds = 0.4 if levels["work"] == "single" else SHARE[int(levels["slab"])]
    return seconds * (1.2 if levels["sign"] == "wrong" else 1.0)


@dataclasses.dataclass
class First:
    """A sweep with two winners, as its command left it."""

    command: SweepCommand
    folder: SweepFolder
    manifest: Manifest
    comparison: Comparison

    def second(self, **own: Any) -> SweepCommand | None:
        return second_sweep(dataclasses.replace(self.command, **own), self.manifest, self.comparison)

    def together(self) -> Comparison:
        return with_together(self.comparison, self.folder, self.manifest)


@pytest.fixture
def first(command: Callable[..., SweepCommand]) -> Callable[..., First]:
    def make(
        design: DesignConfig = DESIGN, time_of: Callable[[Levels], float] = cost, **measure: Any
    ) -> First:
        asked = command(design, measure={"rounds": 8, **measure})
        folder, manifest = simulated(asked, time_of)
        return First(asked, folder, manifest, compared(folder, manifest))

    return make


def test_its_budget_is_a_third_and_no_less_than_twenty_seconds_and_there_is_none_unasked_or_of_its_own(
    first,
) -> None:
    found = first()
    for first_s, second_s in ((600.0, 200.0), (30.0, LEAST_S), (None, None)):
        second = found.second(measure=replace(found.command.measure, budget_s=first_s, placebo=2))
        assert second is not None
        assert (second.measure.budget_s, second.measure.placebo, second.measure.rounds) == (second_s, 0, 8)
    kept = found.second(keep=3)
    assert kept is not None and kept.keep is None
    assert found.second(sweep=replace(found.command.sweep, together=False)) is None
    own = found.manifest.sweep.model_copy(update={"name": f"{found.manifest.sweep.name}-together"})
    again = replace(found, manifest=found.manifest.model_copy(update={"sweep": own}))
    assert again.second() is None


def needy(levels: Levels) -> float:
    """Half the work, a slab, and what needs half the work and gains most."""
    seconds = 0.5 if levels["work"] == "single" else 1.0
    return seconds * (0.9 if levels["slab"] == 8 else 1.0) * (0.3 if levels["after"] == "on" else 1.0)


def test_a_level_that_needs_another_one_is_added_after_it(first) -> None:
    levels = {"after": ["on"], "slab": [8], "work": ["single"]}
    found = first(DesignConfig("one_at_a_time", levels=levels), needy)
    second = found.second()
    assert second is not None
    assert second.sweep.designs[0].steps == [{"work": "single"}, {"slab": 8}, {"after": "on"}]
    measured(second, needy)
    whole = found.together().together
    assert whole is not None and whole.whole.speed == pytest.approx(1 / 0.135, rel=0.02)
    assert whole.whole.arm_label == "work=single,after=on,slab=8"


def test_one_winner_has_nothing_to_be_stacked_with(first) -> None:
    found = first(DesignConfig("one_at_a_time", levels={"work": ["single"], "sign": ["wrong"]}))
    assert len(found.comparison.winners) == 1 and found.second() is None


CROSSED = {"work": ["single"], "half": ["on"], "variable": ["on"], "slab": [8], "idle": ["on"]}


def crossed(levels: Levels) -> float:
    """Gains that multiply, of a slab, a sum and work; nothing else gains."""
    slab, half = SHARE[int(levels["slab"])], 0.9 if levels["half"] == "on" else 1.0
    return slab * half * (0.4 if levels["work"] == "single" else 1.0)


@pytest.mark.parametrize(
    ("kind", "toggles"), [("factorial", ["work", "half"]), ("fractional", list(CROSSED))]
)
def test_what_gains_in_all_combinations_is_measured_together_against_the_baseline(
    first, kind: str, toggles: list[str]
) -> None:
    found = first(DesignConfig(kind, levels={name: CROSSED[name] for name in toggles}), crossed)
    second = found.second()
    assert second is not None
    due = [{"work": "single"}, {"slab": 8}, {"half": "on"}]
    assert second.sweep.designs[0].steps == [step for step in due if step.keys() <= set(toggles)]
    measured(second, crossed)
    whole = found.together().together
    assert whole is not None
    gain = math.prod(
        1 / crossed({"work": "double", "slab": 1, "half": "off", **step})
        for step in second.sweep.designs[0].steps
    )
    assert whole.whole.speed == pytest.approx(gain, rel=0.02)


def test_a_level_of_a_factorial_that_gains_by_itself_is_the_one_to_use(first) -> None:
    found = first(DesignConfig("factorial", levels={"work": ["single"], "variable": ["on"]}), crossed)
    assert found.second() is None
    assert dict(conclusions(found.comparison))["Use it"].endswith("toggles.work=single")


def test_levels_that_were_compared_with_another_than_the_baselines_are_none_to_turn_on(first) -> None:
    levels = {"slab": [4, 8], "work": ["single"], "half": ["on"]}
    found = first(DesignConfig("factorial", levels=levels), crossed)
    second = found.second()
    assert second is not None and second.sweep.designs[0].steps == [{"work": "single"}, {"half": "on"}]


def measured(command: SweepCommand | None, time_of: Callable[[Levels], float] = cost) -> SweepFolder:
    assert command is not None
    return simulated(command, time_of)[0]


def halved(levels: Levels) -> float:
    return cost(levels) * (0.9 if levels["half"] == "on" else 1.0)


def test_the_first_steps_at_once_are_compared_with_the_baseline(first) -> None:
    levels = {"work": ["single"], "half": ["on"], "slab": [8]}
    found = first(DesignConfig("one_at_a_time", levels=levels), halved)
    second = found.second()
    assert second is not None and second.sweep.designs[0].steps == [
        {"work": "single"},
        {"slab": 8},
        {"half": "on"},
    ]
    assert second.sweep.designs[1].arms == {"first 2 steps": {"work": "single", "slab": 8}}
    measured(second, halved)
    whole = found.together()
    assert whole.together is not None
    labels = ["work=single", "work=single,slab=8", "work=single,half=on,slab=8"]
    assert [one.arm_label for one in whole.together.parts if one] == labels
    speeds = [one.speed for one in whole.together.parts if one]
    assert speeds == pytest.approx([2.5, 2.5, 2.5 / 0.9], rel=0.02)
    assert whole.together.parts[0] == found.comparison.winners[0], "the same figures as in the table"
    assert dict(conclusions(whole))["Kept"] == "slab=8 adds nothing, but the rest was not measured without it"


def test_more_levels_than_those_of_the_winners_are_another_answer(first) -> None:
    found = first()
    second = found.second()
    assert second is not None
    (design,) = second.sweep.designs
    more = replace(design, steps=[*design.steps, {"half": "on"}])
    measured(replace(second, sweep=replace(second.sweep, designs=[more])))
    assert found.together().together is None
    work, slab = found.comparison.winners
    along = replace(slab, effect=slab.effect.model_copy(update={"also": ("half",)}))
    moved = replace(found, comparison=replace(found.comparison, winners=(work, along)))
    assert moved.together().together is not None, "unless one of the winners brings them along"


def test_a_second_sweep_of_another_configuration_is_another_answer(first) -> None:
    found = first()
    second = found.second()
    assert second is not None
    measured(replace(second, workload={**second.workload, "size": 64}))
    assert found.together().together is None


def test_results_of_other_winners_or_code_or_without_times_are_no_answer_and_damage_takes_nothing(
    first,
) -> None:
    found = first()
    second = measured(found.second())
    assert found.together().together is not None
    work = found.comparison.winners[0]
    (other,) = (one for one in found.comparison.effects if one.arm_label == "slab=4")
    for winners in ((work,), (work, other)):  # the second sweep has slab=8
        changed = replace(found, comparison=replace(found.comparison, winners=winners))
        assert changed.together().together is None
    written, code = second.manifest_file.read_text(), found.manifest.sweep.code
    assert code in written
    second.manifest_file.write_text(written.replace(code, "0" * len(code)))
    assert found.together().together is None
    second.manifest_file.write_text(written)
    for record in second.path.glob("trials/*/*-r*/record.json"):
        shutil.rmtree(record.parent)
    assert found.together().together is None, "no time"
    second.manifest_file.write_text("{")
    assert found.together() == found.comparison
