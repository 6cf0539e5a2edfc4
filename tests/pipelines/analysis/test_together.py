"""Leave-one-out beside one-at-a-time: toggles that only help together show it."""

from __future__ import annotations

import pytest
from measured import compared, simulated

from pipelines.analysis.judge import EffectResult
from pipelines.analysis.together import together
from pipelines.config.types import DesignConfig
from pipelines.report import wording
from pipelines.statistics.verdicts import Verdict
from pipelines.store.records import Effect

BOTH = (
    DesignConfig("one_at_a_time", levels={"work": ["single"], "slab": [4]}),
    DesignConfig("leave_one_out", best={"work": "single", "slab": 4}),
)


def only_together(levels) -> float:
    """Half the work changes nothing by itself: it needs the larger slab, which is a tenth by itself."""
    if levels["slab"] != 4:
        return 1.0
    return 0.45 if levels["work"] == "single" else 0.9


def test_a_toggle_that_only_helps_together_shows_it_in_one_row(command) -> None:
    found = compared(*simulated(command(*BOTH, measure={"rounds": 12}), only_together, noise=0.002))
    rows = {one.beside.effect.toggle: one for one in found.together}
    assert rows["work"].reading == "helps only beside the others"
    assert rows["slab"].reading == "helps either way"
    assert wording.together_row(rows["work"])[2::2] == ("no difference", "faster")


def result(design: str, verdict: Verdict | None, outcome: str = "") -> EffectResult:
    effect = Effect(id=design, design=design, toggle="amp", level="bf16", pairs=(("a", "b"),))
    return EffectResult(effect, "a", "b", verdict, outcome=outcome)


@pytest.mark.parametrize(
    ("alone", "beside", "reading"),
    [
        (Verdict.FASTER, Verdict.FASTER, "helps either way"),
        (Verdict.NO_DIFFERENCE, Verdict.FASTER, "helps only beside the others"),
        (Verdict.SLOWER, Verdict.FASTER, "helps only beside the others"),
        (Verdict.UNDECIDED, Verdict.FASTER, "helps beside the others; alone it is not known"),
        (None, Verdict.FASTER, "helps beside the others; alone it is not known"),
        (Verdict.FASTER, Verdict.SLOWER, "helps only alone: the others already do its work"),
        (Verdict.NO_DIFFERENCE, Verdict.SLOWER, "helps in neither"),
        (Verdict.FASTER, Verdict.UNDECIDED, ""),
        (Verdict.DIFFERENT, Verdict.FASTER, ""),
        (Verdict.FASTER, Verdict.DIFFERENT, ""),
    ],
)
def test_two_verdicts_are_read_together_and_open_ones_are_not(alone, beside, reading) -> None:
    (row,) = together([result("one_at_a_time", alone), result("leave_one_out", beside)])
    assert row.reading == reading


def test_an_arm_that_has_no_time_helps_nothing() -> None:
    (row,) = together(
        [result("one_at_a_time", Verdict.FASTER), result("leave_one_out", Verdict.FASTER, "oom")]
    )
    assert row.reading == ""


def test_a_sweep_with_one_of_the_designs_has_no_such_table() -> None:
    assert together([result("leave_one_out", Verdict.FASTER)]) == []
    assert together([result("one_at_a_time", Verdict.FASTER)]) == []
