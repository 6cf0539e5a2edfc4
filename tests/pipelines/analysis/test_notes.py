"""Notes on the scatter of a sweep: whose it is, and whether the plan counted on it."""

from __future__ import annotations

from measured import change, compared, simulated

from pipelines.config.types import DesignConfig

LEVELS = {"work": ["single"], "slab": [2, 4]}


def test_scatter_beyond_the_plans_is_a_warning_of_its_own(command) -> None:
    sweep = command(DesignConfig("one_at_a_time", levels=LEVELS), measure={"rounds": 10})
    loud = compared(*simulated(sweep, lambda levels: 1.0, noise=0.1)).notes
    (warning,) = (note for note in loud if "the plan counted on 2.0%" in note)
    assert warning.startswith("pairs scatter by ")


def test_scatter_within_the_plans_is_no_warning(command) -> None:
    sweep = command(DesignConfig("one_at_a_time", levels=LEVELS), measure={"rounds": 10})
    assert not any("the plan counted" in note for note in compared(*simulated(sweep, lambda _: 1.0)).notes)


def test_the_share_of_process_and_layout_is_said_where_processes_ran_several_rounds(command) -> None:
    sweep = command(DesignConfig("one_at_a_time", levels=LEVELS), measure={"rounds": 10})
    folder, manifest = simulated(sweep, lambda levels: 1.0, noise=0.01)
    assert not any("process and layout" in note for note in compared(folder, manifest).notes)
    for record in folder.path.glob("trials/*/p*-r*/record.json"):
        number = int(record.parent.name.split("-")[1][1:])
        change(record, generation=number // 2)
    (note,) = (one for one in compared(folder, manifest).notes if "process and layout" in one)
    assert "% of the variance (F " in note
