"""Stages are processes of their own: one that breaks is a line that says so, and the next one runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from perfsweep.pipelines.config.types import DoctorCommand
from perfsweep.pipelines.gpu_check import answer, stages
from perfsweep.pipelines.gpu_check.answer import Line
from perfsweep.pipelines.gpu_check.stages import Stage, main
from perfsweep.pipelines.store.files import write_atomically
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import ConfigError, RecordError

SUPPORT = Path(__file__).parents[2] / "support"


def test_the_limits_of_all_stages_are_what_the_command_promises() -> None:
    most = sum(stage.limit_s for stage in stages.STAGES.values()) / 60
    (promise,) = (field for field in fields(DoctorCommand) if field.name == "gpu")
    assert f"at most {most:g}." in str(promise.metadata)


def of(name: str, limit_s: float = 60) -> Stage:
    return Stage(f"planted_stages:{name}", limit_s)


PASSED = answer.judged("first", True, "all is well", figure=1.0)


@pytest.fixture
def ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Line, ...]]:
    """Checks with two stages that answer with a line; the first then does this."""

    def check(then: str, limit_s: float = 60) -> tuple[Line, ...]:
        program = tmp_path / "python"
        first = f"if [ $4 = planted_stages:raises ]; then\n:\n{then}\nfi"
        program.write_text(f"#!/bin/sh\necho '{PASSED.model_dump_json()}'\n{first}\n")
        program.chmod(0o755)
        monkeypatch.setattr(stages.sys, "executable", str(program))
        planned = {"0 raises": of("raises", limit_s), "1 fine": of("fine")}
        found = stages.check(tmp_path, Device(), lambda line: None, planned)
        assert found.passed is (len(found.lines) == 2) and found.lines[-1].stage == "1 fine"
        return found.lines[:-1]

    return check


@pytest.mark.parametrize(
    ("then", "why"),
    [
        ("printf 'first\\nCUDA error: \\377\\n\\n' >&2; exit 1", "with status 1: CUDA error: \ufffd"),
        ("kill -9 $$", "with status -9: "),
    ],
)
def test_lines_of_a_broken_stage_are_kept_and_what_it_printed_last_is_quoted(
    ended: Callable[..., tuple[Line, ...]], tmp_path: Path, then: str, why: str
) -> None:
    first, last = ended(then)
    assert (first.name, last.name) == ("first", "the stage itself")
    assert last.text == f"it ended {why} (see {tmp_path / '0-raises' / 'log.txt'})"


def test_a_stage_that_ends_well_has_its_own_lines_only_and_one_that_hangs_is_named(
    ended: Callable[..., tuple[Line, ...]],
) -> None:
    assert [line.name for line in ended("")] == ["first"]
    assert ended("exec sleep 600", 0.2)[-1].text.startswith("it ended not within 0.2 s: ")


def test_an_answer_is_read_back_as_it_was_written_and_refused_by_field_where_it_is_another(
    tmp_path: Path,
) -> None:
    file = tmp_path / "gpu-check.json"
    with pytest.raises(RecordError, match="wrote no answer"):
        answer.read(file)
    lines = (answer.judged("a", True, "fine", rate=float("inf")), *answer.needs_gpu("b"))
    one = answer.Answer(
        device={"type": "cpu"}, driver=None, versions={}, started=1.0, seconds=2.0, lines=lines
    )
    assert answer.read(answer.write(tmp_path, one)) == one
    assert one.passed and one.version == 1
    for text, why in ((b'{"version": 1}', "device: Field required; check again"), (b"no JSON", "file: ")):
        write_atomically(file, text)
        with pytest.raises(RecordError, match=rf"gpu-check\.json: {why}"):
            answer.read(file)


def test_stages_are_chosen_by_number() -> None:
    assert list(stages.chosen([3, 0])) == ["0 facts", "3 memory"]
    assert stages.chosen([]) is stages.STAGES
    with pytest.raises(ConfigError, match="stages=7 is no stage of the check; choose from: 0 facts, 1 clock"):
        stages.chosen([7])


def test_every_stage_names_a_function_that_is_there() -> None:
    import importlib

    for stage in stages.STAGES.values():
        module, _, function = stage.examine.partition(":")
        assert callable(getattr(importlib.import_module(module), function))


def test_a_job_asks_one_stage_or_those_of_its_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(SUPPORT))
    monkeypatch.setattr(stages, "answers", lambda: sys.stdout)
    assert main([str(tmp_path), "planted_stages:fine"]) == 0
    assert Line.model_validate_json(capsys.readouterr().out) == PASSED
    asked: list[str] = []
    monkeypatch.setattr(stages, "_lines", lambda place, stage: asked.append(place.name) or [])
    assert main([str(tmp_path), "2", "0"]) == 0
    assert asked == ["0-facts", "2-fork-and-ranks"]
    found = answer.read(tmp_path / answer.FILE)
    assert found.lines == () and set(found.versions) == set(stages.PACKAGES)
    assert found.versions["numpy"] and found.device["type"]
