"""A script writes nothing below the user's folder where that is refused, unless it is allowed to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from loops import LOOP
from scripted import content, run, started

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.script import user_files
from perfsweep.workloads.script.user_files import UserFiles, WriteRefused

WRITES = {
    "open": "open('there.txt', 'a')",
    "remove": "import os; os.remove('there.txt')",
    "tree": "import shutil; shutil.rmtree('full')",
    "through a link": "open('linked/new.txt', 'w')",
    "elsewhere and back": "import os; os.chdir('/'); open(HERE + '/new.txt', 'w')",
    "database": "import sqlite3; sqlite3.connect('new.db')",
    "torch.save": "import torch; torch.save({}, 'new.pt')",
    "archive": "import torch; torch._C.PyTorchFileWriter('new.pt2')",  # as torch.export.save has it
}


@pytest.mark.parametrize("how", WRITES)
def test_it_is_refused_with_file_line_and_remedy(folder: Path, how: str) -> None:
    text, before = f"HERE = {str(folder)!r}\n{WRITES[how]}\n{LOOP}", content(folder)
    remedy = r"train.py:2 wants to .*\{scratch\}.*workload.writes=allow"
    with pytest.raises(ConfigError, match=remedy), started(folder, text, writes="refuse"):
        pass
    assert content(folder) == before


@pytest.mark.parametrize(
    "line",
    [
        "import os; os.makedirs('full', exist_ok=True)",
        "open('there.txt').read()",
        "import tempfile; tempfile.TemporaryFile().write(b'x')",
        "import sqlite3; [sqlite3.connect(one) for one in (':memory:', '', 'there.txt')]",
    ],
)
def test_reading_and_writing_elsewhere_go_on(folder: Path, line: str) -> None:
    with started(folder, f"{line}\n{LOOP}") as script:
        assert run(script, 2)._guard.refused == {}


def test_the_trials_own_folders_may_lie_below(folder: Path) -> None:
    text = f"import sys, torch; torch.save(1, sys.argv[1] + '/x.pt'); open(sys.argv[1] + '/y', 'w'){LOOP}"
    with started(folder, text, args="{scratch}"):
        assert {one.name for one in (folder / "runs/scratch/rank0").iterdir()} == {"x.pt", "y"}


def test_what_is_written_in_the_middle_of_the_loop_is_refused_there(folder: Path) -> None:
    text = LOOP + "    if number == 2: torch.save(model.state_dict(), 'new.pt')\n"
    with started(folder, text, writes="refuse") as script:
        run(script, 2)
        with pytest.raises(ConfigError, match=r"train.py:\d+ wants to write .*new.pt") as refused:
            run(script, 1)
    assert type(refused.value) is ConfigError  # of which once is enough for a sweep


def test_the_trial_itself_may_write_between_marks_and_afterwards(folder: Path) -> None:
    with started(folder, LOOP) as script:
        (folder / "ours.txt").write_text("x")
        run(script, 1)
        (folder / "ours.txt").unlink()
        assert script._guard.refused == {}
    assert (folder / "ours.txt").write_text("x")


@pytest.mark.parametrize(("most", "told"), [(5, ["full/late.txt"]), (4, [])])
def test_what_became_of_writes_is_told_by_four_names_and_what_lies_there_all_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch, most: int, told: list[str]
) -> None:
    monkeypatch.setattr(user_files, "MOST_LOOKED_AT", most)  # two files above, three below
    with started(folder, f"for n in range(6): open(f'full/{{n}}.txt', 'w')\n{LOOP}") as script:
        (folder / "full/late.txt").write_text("written by native code")
        first = ", ".join(f"full/{number}.txt (train.py:1)" for number in range(4))
        past = [f"{name}: into the script's own folder, by native code or another program" for name in told]
        gone = f"{first} and 2 more: into a folder of the trial's own, which goes with it"
        assert script.sight().writes == [gone, *past]


def test_what_another_sweep_writes_meanwhile_is_not_the_scripts(folder: Path) -> None:
    with started(folder, LOOP) as script:
        (folder / "runs/other/trials").mkdir(parents=True)
        for name in ("manifest.jsonl", "trials/record.json"):
            (folder / "runs/other" / name).write_text("{}")
        assert script.sight().writes == []


def test_the_nearest_folder_decides(tmp_path: Path) -> None:
    guard = UserFiles([tmp_path], [tmp_path / "runs", tmp_path.parent], [])
    guard.refuse("write", tmp_path / "runs/x")
    guard.refuse("write", tmp_path.parent / "x")
    guard.refuse("write", f"{tmp_path}-other/x")
    with pytest.raises(WriteRefused):
        guard.refuse("write", os.fsencode(tmp_path / "runs2"))
