"""The picture of a history: panels of arms, names of versions, and the levels that changes leave."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from perfsweep.pipelines.analysis.across.version_history import ArmHistory, History, Series, Version
from perfsweep.pipelines.report.pictures.history_picture import FRAME, PANEL, history_chart, write_history
from perfsweep.pipelines.report.pictures.svg import BLUE, RED
from perfsweep.pipelines.statistics.change_points import ChangePoint, ChangePoints


def arm(
    *ratios: float, name: str = "fast", points: tuple[tuple[int, float], ...] = (), **fields
) -> ArmHistory:
    values = tuple(math.log(ratio) for ratio in ratios)
    off = {"low": tuple(v + math.log(0.9) for v in values), "high": tuple(v + math.log(1.1) for v in values)}
    series = Series(fields.pop("beside", False), values, **off)
    commits = fields.pop("commits", [f"{n:040x}" for n in range(len(ratios))])
    versions = tuple(
        Version(name, f"sweep number {n}", commit, 5, 1.0, None, False, ())
        for n, commit in enumerate(commits)
    )
    found = ChangePoints(tuple(ChangePoint(*one) for one in points), 0.01) if points else None
    return ArmHistory(name, versions, series, found, "")


def panels(*arms: ArmHistory):
    return history_chart(History("pair", "naive", 0.05, False, 3, arms), 700).axes


def test_each_arm_has_a_panel_with_its_change_in_percent_against_its_first_version() -> None:
    first, second = panels(arm(1.0, 1.5, 0.5), arm(2.0, 2.0, name="naive", beside=True))
    (points,) = [
        one for one in first.collections if hasattr(one, "get_sizes") and len(one.get_offsets()) == 3
    ]
    assert [float(y) for _, y in points.get_offsets()] == pytest.approx([0.0, 50.0, -50.0])
    whiskers = first.collections[0].get_segments()
    assert [segment[:, 1].tolist() for segment in whiskers][1] == pytest.approx([35.0, 65.0])
    assert first.get_title(loc="left") == "fast"
    assert second.get_title(loc="left") == "naive, against the baseline"
    assert first.get_ylabel() == "change of time, %"


@pytest.mark.parametrize("width", [500, 700])
def test_a_picture_is_as_wide_as_asked_and_grows_by_a_panel_with_each_arm(width: int) -> None:
    one, two = (
        history_chart(History("pair", "naive", 0.05, False, 3, (arm(1.0, 1.5),) * count), width)
        for count in (1, 2)
    )
    assert tuple(one.bbox.size) == (width, FRAME + PANEL) and tuple(two.bbox.size) == (
        width,
        FRAME + 2 * PANEL,
    )


def names(*ratios: float, **fields) -> list[str]:
    (axes,) = panels(arm(*ratios, **fields))
    return [label.get_text() for label in axes.get_xticklabels()]


def test_versions_are_named_by_their_commit_or_else_by_their_sweep() -> None:
    assert names(1.0, 1.0, commits=["abcdef0123", ""]) == ["abcdef0", "sweep number"]


@pytest.mark.parametrize(("count", "named"), [(24, 24), (25, 13), (48, 24), (49, 17)])
def test_of_many_versions_every_second_or_third_one_is_named(count: int, named: int) -> None:
    assert len(names(*[1.0] * count)) == named


def levels(one: ArmHistory) -> list[tuple[float, float, float]]:
    """Begin, end and height of each level."""
    (axes,) = panels(one)
    found = []
    for lines in axes.collections[2:]:
        ((begin, height), (end, _)) = lines.get_segments()[0]
        found.append((float(begin), float(end), round(float(height), 6)))
    return found


def test_levels_lie_between_changes_and_rise_in_red_and_fall_in_blue() -> None:
    one = arm(1.0, 1.0, 2.0, 2.0, 1.5, 1.5, points=((2, 0.7), (4, -0.3)))
    assert levels(one) == [(-0.4, 1.4, 0.0), (1.6, 3.4, 100.0), (3.6, 5.4, 50.0)]
    (axes,) = panels(one)
    assert [line.get_xdata()[0] for line in axes.lines] == [1.5, 3.5]
    assert [line.get_color() for line in axes.lines] == [RED, BLUE]


def test_without_changes_there_is_one_level() -> None:
    (axes,) = panels(arm(1.0, 1.2, 1.4))
    assert levels(arm(1.0, 1.2, 1.4)) == [(-0.4, 2.4, 20.0)]
    assert list(axes.lines) == []


def test_the_file_says_what_it_shows_and_its_folder_is_made(tmp_path: Path) -> None:
    found = History("pair", "naive", 0.05, False, 3, (arm(1.0, 1.5, 0.5),))
    write_history("--picture", tmp_path / "new" / "h.svg", found)
    assert 'aria-label="1 arms over 3 versions"' in (tmp_path / "new" / "h.svg").read_text()
