"""From the text of a command and the levels of an arm to words and variables; which files are the program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perfsweep.workloads import custom_toggles, user_environment
from perfsweep.workloads.command.config import arm_words, of_arm, program_files, words
from perfsweep.workloads.custom_toggles import Change
from perfsweep.workloads.declarations import Level
from perfsweep.workloads.errors import ConfigError

CUSTOM = custom_toggles.read(
    {
        "level": {6: "6", 9: "9"},
        "threads": {1: "", 4: "--threads 4"},
        "size": {"small": "--size=1", "large": "--size=2"},
        "order": {"plain": "--seed={seed}", "random": "--shuffle --seed={seed}"},
    }
)
BASE = {"level": 6, "threads": 1, "size": "small", "order": "plain"}


def arm(text: str, **levels: Any) -> list[str]:
    return arm_words(text, CUSTOM, {**BASE, **levels}, {"seed": "5", "scratch": "/s"})


def test_words_are_split_at_quotes_and_no_variable_or_star_is_expanded() -> None:
    assert words("a 'b c' \"d|e\" $HOME *.txt", "here") == ["a", "b c", "d|e", "$HOME", "*.txt"]


@pytest.mark.parametrize("operator", ["|", ">", "2>&1", ";"])
def test_what_is_meant_for_a_shell_is_refused_unless_it_is_quoted(operator: str) -> None:
    with pytest.raises(ConfigError, match="and no shell reads it: write sh -c"):
        words(f"sort a {operator} b", "workload.command")
    assert words(f"cut -d '{operator}' a", "here") == ["cut", "-d", operator, "a"]


@pytest.mark.parametrize(
    ("text", "message"), [("", "here is empty; write here='program"), ("a 'b", "cannot be split into words")]
)
def test_a_command_that_cannot_be_read_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        words(text, "here")


def test_arguments_of_levels_stand_where_they_are_named_and_others_at_the_end() -> None:
    assert arm("gzip -{level} {threads} f", level=9) == ["gzip", "-9", "f", "--size=1", "--seed=5"]
    assert arm("gzip -{level} {threads} f", threads=4)[:4] == ["gzip", "-6", "--threads", "4"]
    assert arm("sh -c 'gzip -{level} {threads} f'", threads=4)[2] == "gzip -6 --threads 4 f"


def test_seed_and_scratch_are_filled_in_and_other_braces_stay() -> None:
    found = arm("awk '{print $1} {other}' {scratch}/a {level} {threads} {size}", order="random")
    assert found == ["awk", "{print $1} {other}", "/s/a", "6", "--size=1", "--shuffle", "--seed=5"]


def test_the_program_is_what_is_run_and_not_what_it_reads_or_writes(tmp_path: Path) -> None:
    for name in ("tool", "train.py", "data.txt", "pkg/mod.py", "pkg/app/__main__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")

    def files(*given: str) -> list[str]:
        return [str(file.relative_to(tmp_path)) for file in program_files(given, tmp_path)]

    assert files("./tool", "data.txt") == ["tool"]
    assert files("taskset", "-c", "0", "python3", "train.py", "data.txt") == ["train.py"]
    assert files("python3", "-m", "pkg.mod", "train.py", "train.py") == ["pkg/mod.py", "train.py"]
    assert files("python3", "-m", "pkg.app") == ["pkg/app/__main__.py"]
    assert files("gzip", "data.txt", "tool") == []
    assert files("/bin/sh", "-c", "true") == []


def test_later_ones_stand_in_for_earlier_ones_and_an_empty_one_takes_away() -> None:
    started = {"HOME": "/u", "A": "user", "B": "user", "C": "user"}
    levels = [Level("one", env={"A": "level", "LD_PRELOAD": "lib"}), Level("two", env={"B": "level"})]
    changes = [Change(env={"B": "{seed}-x", "C": "", "D": "d"})]
    assert of_arm(levels, changes, {"seed": "7"}, started) == {
        "HOME": "/u",
        "A": "level",
        "LD_PRELOAD": "lib",
        "B": "7-x",
        "D": "d",
    }


def test_what_measuring_has_added_is_taken_back_first() -> None:
    mine = {"HOME": "/u", "OMP_NUM_THREADS": "3"}
    started = {**mine, **user_environment.changed(mine, {"OMP_NUM_THREADS": "1", "EXTRA": "x"})}
    assert of_arm([], [], {}, started) == mine
