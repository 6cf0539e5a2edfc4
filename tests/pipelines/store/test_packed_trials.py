"""Trials in one file: read as before, whole whatever happens meanwhile, and trusted no further."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
from recorded import FAST, NAIVE, Built, build

from perfsweep.pipelines.commands.catalog import COMMANDS
from perfsweep.pipelines.store.progress_read import read_progress
from perfsweep.pipelines.store.records import pack_finished, read_iterations, replay_dir
from perfsweep.pipelines.store.trial_files import PACKED
from perfsweep.workloads.errors import ConfigError, RecordError


@pytest.fixture
def built(tmp_path: Path) -> Built:
    return build(tmp_path / "demo")


def answer(*words: str, capsys: pytest.CaptureFixture[str]) -> str:
    COMMANDS.main([*words], standalone_mode=False)
    return capsys.readouterr().out


def read(built: Built) -> tuple[list[str], list[str]]:
    """All that is read of a sweep: records with their series, and what is said of damaged ones."""
    progress = read_progress(built.folder, built.manifest)
    found = [
        (one.folder.name, one.record, read_iterations(one.folder) if one.record.iterations else {})
        for one in progress.every
    ]
    return [
        f"{name} {record} {[(key, value.tolist()) for key, value in series.items()]}"
        for name, record, series in found
    ], progress.damaged


def folders(built: Built) -> list[str]:
    return sorted(f"{path.parent.name}/{path.name}" for path in built.folder.path.glob("trials/*/*"))


@pytest.mark.parametrize("words", [("compare", "--json"), ("status", "--json")])
def test_commands_say_the_same_of_a_sweep_that_is_packed(
    built: Built, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = str(built.folder.path)
    before, read_before = answer(words[0], sweep, *words[1:], capsys=capsys), read(built)
    assert answer("pack", sweep, capsys=capsys) == f"packed 6 trials into {built.folder.path / PACKED}\n"
    assert [name.partition("/")[0] for name in folders(built)] == [FAST.id], "the one that failed stays"
    assert read(built) == read_before and len(read_before[0]) == 7
    assert answer(words[0], sweep, *words[1:], capsys=capsys) == before
    packed = (built.folder.path / PACKED).read_bytes()
    assert "nothing to pack" in answer("pack", sweep, capsys=capsys)
    assert (built.folder.path / PACKED).read_bytes() == packed


def test_what_is_measured_later_is_packed_with_the_rest(built: Built) -> None:
    assert pack_finished(built.folder) == 6
    built.add_round(NAIVE, 3)
    every = read(built)
    assert len(every[0]) == 8
    assert pack_finished(built.folder) == 1
    assert read(built) == every


def test_states_that_other_arms_replay_stay(built: Built) -> None:
    kept = next(built.folder.path.glob(f"trials/{NAIVE.id}/*"))
    replay_dir(kept).mkdir()
    assert pack_finished(built.folder) == 5 and kept.is_dir()


@pytest.mark.parametrize("step", ["write", "rename", "remove", "remove half"])
def test_whatever_ends_the_packing_no_trial_is_lost(
    built: Built, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, remove = read(built), shutil.rmtree

    def killed(*words: object, **options: object) -> None:
        if step == "remove half":
            (Path(str(words[0])) / "record.json").unlink()
        raise KeyboardInterrupt

    of = {"write": ("zipfile.ZipFile.write"), "sync": "os.fsync", "rename": "pathlib.Path.replace"}
    with monkeypatch.context() as patch:
        patch.setattr(of.get(step, "shutil.rmtree"), killed)
        with pytest.raises(KeyboardInterrupt):
            pack_finished(built.folder)
    assert shutil.rmtree is remove and read(built) == before
    assert pack_finished(built.folder) == 6 and read(built) == before
    assert len(folders(built)) == 1 and not list(built.folder.path.glob(".*.tmp"))


def test_a_trial_that_is_damaged_in_the_file_is_named_and_the_others_are_read(built: Built) -> None:
    pack_finished(built.folder)
    file = built.folder.path / PACKED
    with ZipFile(file) as packed:
        name = next(name for name in packed.namelist() if name.endswith("record.json"))
        content = packed.read(name)
    file.write_bytes(file.read_bytes().replace(content, content.replace(b"ok", b"ko"), 1))
    rows, damaged = read(built)
    assert len(rows) == 6 and len(damaged) == 1 and f"demo/{PACKED}/{name} is damaged" in damaged[0]
    built.add_round(NAIVE, 3)
    before = file.read_bytes()
    with pytest.raises(RecordError, match="nothing was packed"):
        pack_finished(built.folder)
    assert file.read_bytes() == before


def _zip(file: Path, name: str, compression: int = 0) -> None:
    with ZipFile(file, "w", compression) as packed:
        packed.writestr(name, b"0" * 10_000)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda file: file.write_bytes(file.read_bytes()[:-30]), "is damaged"),
        (lambda file: (file.unlink(), file.mkdir()), "Is a directory"),
        (lambda file: _zip(file, "../../x/record.json"), "no `perfsweep pack` has written it"),
        (lambda file: _zip(file, "a/p000-r000-a0/x", ZIP_DEFLATED), "no `perfsweep pack` has written it"),
    ],
    ids=["cut", "folder", "outside", "compressed"],
)
def test_a_file_that_is_damaged_or_anothers_is_one_sentence(
    built: Built, damage: Callable[[Path], object], says: str, tmp_path: Path
) -> None:
    pack_finished(built.folder)
    damage(built.folder.path / PACKED)
    for act in (read, lambda one: pack_finished(one.folder)):
        with pytest.raises(RecordError, match=says):
            act(built)
    assert not (tmp_path / "x").exists() and not Path("/x").exists()


def test_a_sweep_that_is_being_measured_is_not_packed(built: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    from perfsweep.pipelines.commands import sessions
    from perfsweep.pipelines.store.writers import locked

    with locked(built.folder), pytest.raises(ConfigError, match="is being measured by another command"):
        sessions.pack(str(built.folder.path))
    monkeypatch.setattr(sessions.submitted, "alive", lambda folder: {"slurm": ["p000"]})
    with pytest.raises(ConfigError, match="1 jobs may still run on Slurm; wait with `perfsweep wait"):
        sessions.pack(str(built.folder.path))
    assert not (built.folder.path / PACKED).exists()
