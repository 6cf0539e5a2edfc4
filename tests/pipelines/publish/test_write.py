"""What is said to W&B of a run, and how the run is ended where that fails."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from recorded import FAST, Built, build

from perfsweep.pipelines.publish import write
from perfsweep.pipelines.publish.content import RunContent
from perfsweep.pipelines.publish.runs import SweepRuns
from perfsweep.workloads.errors import RecordError


class Run:
    """A run of W&B that notes what it is told."""

    def __init__(self, folder: Path) -> None:
        self.dir, self.url = str(folder / "run-1" / "files"), "http://there/run"
        self.summary: dict[str, Any] = {}
        self.axes: list[tuple[str, str]] = []
        self.rows: list[Any] = []
        self.codes: list[int] = []

    def define_metric(self, name: str, step_metric: str) -> None:
        self.axes.append((name, step_metric))

    def log(self, row: Any) -> None:
        self.rows.append(row)

    def finish(self, exit_code: int) -> None:
        self.codes.append(exit_code)


@pytest.fixture
def content(tmp_path: Path) -> RunContent:
    built: Built = build(tmp_path / "sweep")
    made = SweepRuns(built.folder, built.manifest).content(("p000", FAST.id))
    assert made is not None
    return dataclasses.replace(made, files=(), exit_code=5)


def test_rows_axes_and_summary_are_said_and_the_run_ended_with_its_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: RunContent
) -> None:
    run = Run(tmp_path)
    monkeypatch.setattr(write, "_opened", lambda *words, resume: (run, "old"))
    first = content.segments[:1]
    found = write.write_run(tmp_path, content, "id", mode="offline", segments=first)
    assert found == (tmp_path / "run-1", "http://there/run", "old")
    assert len(run.rows) == first[0].count
    assert run.axes == [(f"{kind}/*", f"{kind}/index") for kind in ("iter", "warmup", "log")]
    assert run.summary == {**content.summary, **content.published()}
    assert run.codes == [5]


@pytest.mark.parametrize(("resume", "asked"), [(True, "must"), (False, None)])
def test_wandb_is_told_whose_run_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: RunContent, resume: bool, asked: str | None
) -> None:
    begun = list[Any]()
    monkeypatch.setattr("wandb.init", lambda **words: begun.append(words) or Run(tmp_path))
    own = dataclasses.replace(content, group="demo", tags=("Spinner", "demo"), entity="team")
    write.write_run(tmp_path, own, "id-g2", mode="offline", segments=(), resume=resume)
    (words,) = begun
    told = words["settings"]
    assert words["config"] == content.config
    assert (told.run_id, told.run_name, told.run_group) == ("id-g2", content.name, "demo")
    assert (told.run_job_type, told.run_tags) == (content.job_type, ("Spinner", "demo"))
    assert (told.entity, told.project, told.mode) == ("team", content.project, "offline")
    assert (told.root_dir, told.resume) == (str(tmp_path), asked)


def test_one_that_lies_elsewhere_is_refused_and_ended_as_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: RunContent
) -> None:
    run = Run(tmp_path / "elsewhere")
    monkeypatch.setattr(write, "_opened", lambda *words, resume: (run, ""))
    with pytest.raises(RecordError, match=r"^W&B writes to .*elsewhere.* instead of .*staging; check that"):
        write.write_run(tmp_path / "staging", content, "id", mode="offline", segments=())
    assert (run.codes, run.summary) == ([1], {})
