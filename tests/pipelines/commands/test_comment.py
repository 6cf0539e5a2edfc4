"""`perfsweep comment` reads what `judge --json` wrote, and refuses anything else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfsweep.pipelines.cli import main
from perfsweep.pipelines.report.version_answer import Answer, Side

ANSWER = Answer(Side("main", "0" * 40), Side("worktree", None), "no difference", "same code", 0, 0.025)


def ended(*words: object) -> int:
    with pytest.raises(SystemExit) as end:
        main(["comment", *map(str, words)])
    return int(end.value.code or 0)


def test_a_comment_goes_to_a_file_or_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "judge.json"
    file.write_text(json.dumps(ANSWER.as_json()))
    assert ended(file, "--output", tmp_path / "comment.md") == 0 and capsys.readouterr().out == ""
    assert ended(file) == 0
    said = capsys.readouterr().out
    assert said == (tmp_path / "comment.md").read_text() and "### perfsweep: no difference" in said


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "judge.json cannot be read (No such file or directory)"),
        ("", "judge.json is no JSON"),
        ("[]", "judge.json is no answer of perfsweep judge (schema None)"),
        ('{"schema": "perfsweep.judge/2"}', "judge.json is no answer of perfsweep judge"),
        ('{"schema": "perfsweep.bisect/1"}', "(schema perfsweep.bisect/1)"),
    ],
)
def test_a_file_of_anything_else_is_one_sentence(
    tmp_path: Path, text: str | None, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        (tmp_path / "judge.json").write_text(text)
    assert ended(tmp_path / "judge.json") == 2
    said = capsys.readouterr()
    assert said.out == "" and sentence in said.err and "perfsweep judge --json" in said.err
    assert said.err.count("\n") == 1


def test_a_comment_that_cannot_be_written_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "judge.json"
    file.write_text(json.dumps(ANSWER.as_json()))
    assert ended(file, "--output", tmp_path) == 2
    assert f"{tmp_path} cannot be written (Is a directory); choose another file" in capsys.readouterr().err
