"""A pack waits for no import that its fork server could do, and ends with a sentence where it must."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipelines.config.types import DesignConfig
from pipelines.execution import launch, pack
from pipelines.execution.pack import PackRun
from pipelines.execution.spawn import Child, ForkServer
from pipelines.plan import plan
from pipelines.store.records import SweepFolder
from workloads.api import Device

LOOK = """
import json, sys
from pipelines.execution import pack, spawn

seen = {"at import": "torch" in sys.modules}
begin = spawn.ForkServer.__init__


def note(*arguments, **options):
    seen.setdefault("as the server begins", "torch" in sys.modules)
    begin(*arguments, **options)


spawn.ForkServer.__init__ = note
start = spawn.ForkServer.start


def note_start(*arguments):
    seen.setdefault("as the first trial starts", "torch" in sys.modules)
    return start(*arguments)


spawn.ForkServer.start = note_start
status = pack.main(sys.argv[1:])
print(json.dumps({**seen, "status": status}))
"""


@pytest.mark.slow
def test_the_fork_server_and_the_first_trial_begin_without_torch_in_the_pack(command, tmp_path: Path) -> None:
    manifest = plan.make_plan(command(DesignConfig("ladder", levels={"slab": [2]})), Device())
    folder = SweepFolder(tmp_path / "runs" / manifest.sweep.name)
    launch.prepare(folder, manifest, "")
    done = subprocess.run(
        [sys.executable, "-c", LOOK, str(folder.path), manifest.packs[0].id],
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(manifest.sweep.import_paths)},
    )
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen == {
        "at import": False,
        "as the server begins": False,
        "as the first trial starts": False,
        "status": 0,
    }


@pytest.fixture
def planned(command, tmp_path: Path) -> SweepFolder:
    manifest = plan.make_plan(command(DesignConfig("ladder", levels={"slab": [2]})), Device())
    folder = SweepFolder(tmp_path / "runs" / manifest.sweep.name)
    launch.prepare(folder, manifest, "")
    return folder


def test_a_plan_that_was_cut_off_ends_a_pack_with_a_sentence(
    planned: SweepFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    os.truncate(planned.manifest_file, 30)
    assert pack.main([str(planned.path), "p000"]) == pack.CANNOT_READ
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{planned.manifest_file} line 1 is damaged")
    assert line.endswith("start the sweep again, which mends that")


def test_a_fork_server_that_was_killed_ends_a_pack_with_a_sentence(
    planned: SweepFolder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(run: PackRun) -> None:
        server = ForkServer([])
        server._process.kill()
        server.call(print)

    monkeypatch.setattr(PackRun, "run", lost)
    assert pack.main([str(planned.path), "p000"]) == pack.STUCK
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(
        "the server that forks trials ended with status -9: stopped before a round was finished"
    )


@pytest.mark.slow
def test_a_specification_that_was_damaged_before_its_trial_read_it_blames_no_arm(
    planned: SweepFolder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    start = ForkServer.start

    def damage(server: ForkServer, spec_file: Path, *rest: Any) -> list[Child]:
        spec_file.write_text(spec_file.read_text()[:40])
        return start(server, spec_file, *rest)

    monkeypatch.setattr(ForkServer, "start", damage)
    assert pack.main([str(planned.path), "p000"]) == pack.CANNOT_READ
    (line,) = capsys.readouterr().out.splitlines()
    (file,) = planned.path.glob("trials/*/*/spec.json")
    assert line.startswith(f"{file} is damaged")
    assert line.endswith("start the sweep again, which mends that")
    assert not file.with_name("record.json").exists()
    (said,) = file.with_name("log.txt").read_text().splitlines()
    assert line.startswith(said)
