"""Kinds of arguments: numbers within bounds, and the words that are offered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from perfsweep.pipelines.commands import arguments
from perfsweep.pipelines.commands.arguments import (
    COUNT,
    FILE,
    MEASURED,
    SECONDS,
    SHARE,
    SWEEP_FOLDER,
    Kind,
    option,
)


@pytest.mark.parametrize(
    ("kind", "text", "number"),
    [
        (SHARE, "0", 0.0),
        (SHARE, "0.05", 0.05),
        (SHARE, "9.99", 9.99),
        (SHARE, "10", None),
        (SHARE, "-0.1", None),
        (SHARE, "nan", None),
        (SHARE, "five", None),
        (COUNT, "0", None),
        (COUNT, "1e-8", 1e-8),
        (COUNT, "1e11", 1e11),
        (COUNT, "1e30", None),
        (COUNT, "inf", None),
        (SECONDS, "-1", None),
    ],
)
def test_a_number_lies_within_its_bounds(kind: Any, text: str, number: float | None) -> None:
    if number is not None:
        assert kind.convert(text, None, None) == number
        return
    with pytest.raises(click.UsageError, match=f"{text} is no "):
        kind.convert(text, None, None)


def test_each_bound_says_what_is_meant() -> None:
    for kind, meaning in (
        (SHARE, "share such as 0.05"),
        (COUNT, "positive number below 1,000,000,000,000$"),
        (SECONDS, "of seconds"),
    ):
        with pytest.raises(click.UsageError, match=f"x is no .*{meaning}"):
            kind.convert("x", None, None)


def offered(kind: Any, typed: str = "", command: str = "sweep", **params: Any) -> list[str]:
    context = click.Context(click.Command(command), info_name=command)
    context.params = params
    return [item.value for item in kind.shell_complete(context, click.Argument(["x"]), typed)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for sweep in ("runs/b", "runs/a", "old/c"):
        Path(sweep).mkdir(parents=True)
        Path(sweep, "manifest.jsonl").touch()
    Path("runs/no-sweep").mkdir()
    for file in ("then.json", "train.py", "runs/now.json"):
        Path(file).touch()
    return tmp_path


def test_words_are_sorted_begin_as_typed_and_come_once() -> None:
    kind = Kind(lambda context, typed: ["demo", "amp", "ablation", "amp"])
    assert offered(kind) == ["ablation", "amp", "demo"]
    assert offered(kind, "a") == ["ablation", "amp"]
    assert offered(kind, "x") == []


def test_a_kind_takes_what_its_check_does_not_refuse() -> None:
    checked = list[str]()
    assert Kind(lambda context, typed: (), checked.append).convert("x", None, None) == "x"
    assert checked == ["x"]


def test_sweeps_are_offered_of_runs_or_of_the_folder_that_was_typed(folder: Path) -> None:
    assert offered(SWEEP_FOLDER) == ["runs/a", "runs/b"]
    assert offered(SWEEP_FOLDER, "runs/") == ["runs/a", "runs/b"]
    assert offered(SWEEP_FOLDER, "runs/b") == ["runs/b"]
    assert offered(SWEEP_FOLDER, "./old/") == ["./old/c"]
    assert offered(SWEEP_FOLDER, f"{folder}/old/") == [f"{folder}/old/c"]
    assert offered(SWEEP_FOLDER, "ol") == []


def test_files_and_folders_are_offered_in_the_folder_that_was_typed(folder: Path) -> None:
    assert offered(FILE) == ["old/", "runs/", "then.json", "train.py"]
    assert offered(FILE, "runs/n") == ["runs/no-sweep/", "runs/now.json"]
    assert offered(FILE, "nowhere/x") == []


def test_what_can_be_compared_is_a_sweep_a_baseline_or_a_folder_of_them(folder: Path) -> None:
    assert offered(MEASURED) == ["old/", "runs/", "runs/a", "runs/b", "then.json"]
    assert offered(MEASURED, "runs/") == ["runs/a", "runs/b", "runs/no-sweep/", "runs/now.json"]


def test_groups_are_offered_and_then_the_names_in_one(folder: Path) -> None:
    assert "workload=" in offered(arguments.OVERRIDE) and "runs/a" not in offered(arguments.OVERRIDE)
    assert "runs/a" in offered(arguments.OVERRIDE, command="profile")
    assert offered(arguments.OVERRIDE, "measure=q") == ["measure=quick"]
    assert offered(arguments.OVERRIDE, "name=") == []
    demos = offered(arguments.OVERRIDE, "sweep=c", overrides=("workload=probe1d",))
    assert demos == ["sweep=chain"] and offered(arguments.OVERRIDE, "sweep=c") != demos


def test_an_option_shows_its_default_where_it_has_one() -> None:
    assert option("--margin", "A share.", default=0.05).show_default
    assert not option("--arm", "An arm.").show_default
    assert not option(["as_json", "--json"], "JSON.", is_flag=True, default=False).show_default
