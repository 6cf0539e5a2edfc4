"""Stages are processes of their own: one that breaks is a line that says so, and the next one runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from perfsweep.pipelines.config.types import DoctorCommand
from perfsweep.pipelines.gpu_check import answer, stages
from perfsweep.pipelines.gpu_check.__main__ import main
from perfsweep.pipelines.gpu_check.answer import Line, Verdict
from perfsweep.pipelines.gpu_check.stages import Stage
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


@pytest.mark.slow
def test_a_stage_that_breaks_takes_no_other_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT), prepend=":")
    heard: list[Line] = []
    planned = {"0 raises": of("raises"), "1 dies": of("dies"), "2 hangs": of("hangs", 15), "3": of("fine")}
    found = stages.check(tmp_path, Device(), heard.append, planned)
    assert [(line.stage, line.name, line.verdict.value) for line in heard] == [
        *(("0 raises", "first", "PASS"), ("0 raises", "the stage itself", "FAIL")),
        *(("1 dies", "first", "PASS"), ("1 dies", "the stage itself", "FAIL")),
        *(("2 hangs", "first", "PASS"), ("2 hangs", "the stage itself", "FAIL")),
        ("3", "first", "PASS"),
    ]
    why = [line.text for line in heard if line.verdict is Verdict.FAIL]
    assert "it ended with status 1: RuntimeError: device-side assert" in why[0]
    assert "it ended with status -9" in why[1]
    assert "it ended not within 15 s" in why[2]
    assert not found.passed
    assert answer.read(tmp_path / answer.FILE) == found


PASSED = answer.judged("first", True, "all is well", figure=1.0)


@pytest.fixture
def ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Line, ...]]:
    """Checks with one stage, whose process answers with a line and then does this."""

    def check(then: str, limit_s: float = 60) -> tuple[Line, ...]:
        program = tmp_path / "python"
        program.write_text(f"#!/bin/sh\necho '{PASSED.model_dump_json()}'\n{then}\n")
        program.chmod(0o755)
        monkeypatch.setattr(stages.sys, "executable", str(program))
        return stages.check(tmp_path, Device(), lambda line: None, {"0 raises": of("raises", limit_s)}).lines

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


def test_a_file_of_another_version_is_refused_by_its_field(tmp_path: Path) -> None:
    file = tmp_path / answer.FILE
    with pytest.raises(RecordError, match="wrote no answer"):
        answer.read(file)
    write_atomically(file, b'{"version": 1}')
    with pytest.raises(RecordError, match=r"gpu-check\.json: device: Field required; check again"):
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
