"""Processes that publish: their answers, what follows where there is none, and that none is left."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from perfsweep.pipelines.publish import publishing
from perfsweep.pipelines.publish.published import PublishedRun
from perfsweep.pipelines.publish.publishing import GIVEN_UP, Crew, Delivered
from perfsweep.pipelines.publish.server import status_sentence
from perfsweep.pipelines.store.records import SweepFolder

WORKER = """#!/bin/sh
echo "$$ $@" >> {folder}/started
echo '{{"ready": true}}'
while read key; do
    case $key in
    *good*) cat {folder}/run.json;;
    *strange*) echo '{{"run": null, "problems": ["damaged"]}}';;
    *waits*) echo '{{"waiting": true}}'; sleep {pause}; cat {folder}/run.json;;
    *hangs*) exec sleep 600;;
    *half*) printf '{{"run"'; exit 1;;
    *dies*) echo "Traceback" >&2; echo "no room" >&2; exit 1;;
    *killed*) kill -9 $$;;
    esac
done
"""
RUN = PublishedRun("a", "baseline", "p000", "id", "there", 5, 5, "written")


@pytest.fixture
def crew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Crew]:
    """Makes crews whose processes are the script above."""
    (tmp_path / "run.json").write_text(json.dumps({"run": vars(RUN), "problems": []}) + "\n")
    program = tmp_path / "python"
    program.write_text(WORKER.format(folder=tmp_path, pause=0.05))
    program.chmod(0o755)
    monkeypatch.setattr(publishing.sys, "executable", str(program))
    folder = SweepFolder(tmp_path / "sweep")
    folder.wandb_dir.mkdir(parents=True)
    return lambda size=1, patience_s=60.0, server=None: Crew(folder, server, size, patience_s)


def delivered(made: Crew, *arms: str) -> Delivered:
    return made.deliver([("p000", arm) for arm in arms])


def started(tmp_path: Path) -> list[str]:
    file = tmp_path / "started"
    return file.read_text().splitlines() if file.exists() else []


def alive(tmp_path: Path) -> list[int]:
    return [pid for line in started(tmp_path) if Path(f"/proc/{(pid := int(line.split()[0]))}").exists()]


def test_one_process_publishes_run_after_run(crew: Callable[..., Crew], tmp_path: Path) -> None:
    done = delivered(crew(), "good", "strange", "good2")
    assert done == Delivered({("p000", "good"): RUN, ("p000", "good2"): RUN}, {}, ["damaged"])
    assert alive(tmp_path) == []
    delivered(crew(server="http://there"), "good")
    delivered(crew(3))
    own = f"-m perfsweep.pipelines.publish.worker {tmp_path / 'sweep'}"
    said = [words.partition(" ")[2] for words in started(tmp_path)]
    assert said == [f"{own} offline", f"{own} online http://there"], "and none without runs"


@pytest.mark.parametrize(
    ("arm", "why"),
    [
        ("dies", "the publishing process ended: no room"),
        ("half", "the publishing process ended: it was killed"),
        ("hangs", "not done within 0.2 s and given up; is the server overloaded?"),
    ],
)
def test_a_process_that_is_lost_names_why_and_what_came_after_it_is_given_up(
    crew: Callable[..., Crew], tmp_path: Path, arm: str, why: str
) -> None:
    done = delivered(crew(patience_s=0.2 if arm == "hangs" else 60.0), arm, "later")
    assert done.failures == {("p000", arm): why, ("p000", "later"): GIVEN_UP}
    assert (done.runs, alive(tmp_path)) == ({}, [])


def test_what_a_server_refused_is_told_rather_than_how_the_process_ended(
    crew: Callable[..., Crew], tmp_path: Path
) -> None:
    log = tmp_path / "sweep/wandb/.publishing-x/run/debug-internal.log"
    log.parent.mkdir(parents=True)
    log.write_text('{"level":"ERROR","status":403}\n')
    done = delivered(crew(), "dies")
    assert done.failures == {("p000", "dies"): f"W&B {status_sentence(403)}"}


def test_processes_import_what_runs_here_and_nothing_of_the_folder_they_start_in(
    crew: Callable[..., Crew], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = f"env > {tmp_path}/env\n"
    program = tmp_path / "python"
    program.write_text(program.read_text().replace("echo '{\"ready", f"{seen}echo '{{\"ready"))
    own = str(Path(publishing.__file__).parents[3])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["/user", own]))
    delivered(crew(), "good")
    env = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines() if "=" in line)
    assert env["PYTHONPATH"].split(os.pathsep) == [own, "/user"]
    assert (env["PYTHONSAFEPATH"], env["OMP_NUM_THREADS"]) == ("1", "1")
