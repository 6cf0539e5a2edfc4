"""The code of a version is what git has of it, and reading it leaves the user's repository as it was."""

from __future__ import annotations

from pathlib import Path

import pytest
from git_repository import begin, commit, git, state

from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.execution import launch
from perfsweep.pipelines.plan.plan import make_plan
from perfsweep.pipelines.store.records import SweepFolder
from perfsweep.pipelines.versions import tree
from perfsweep.pipelines.versions.repository import Repository
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.snapshot import Snapshot


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = begin(tmp_path_factory.mktemp("git") / "repo")
    commit(
        root,
        {
            "train.py": "A = 1\n",
            "old.py": "",
            "conf.yaml": "a: 1\n",
            "README.md": "x",
            ".gitignore": "made.py",
        },
        "first",
    )
    commit(root, {"train.py": "A = 2\n", "old.py": None, "pkg/new.py": "N = 1\n"}, "second")
    commit(root, {"README.md": "y"}, "prose")
    commit(root, {"conf.yaml": "a: 2\n"}, "data")
    (root / "train.py").write_text("A = 3\n")
    (root / "fresh.py").write_text("")
    (root / "made.py").write_text("")
    return root


def names(found: tree.Tree) -> dict[str, str]:
    root = found.repository.root
    return {str(file.relative_to(root)): text.decode() for file, text in found.files.items()}


def test_a_version_has_its_own_code_and_an_export_names_what_the_checkout_has_beside_it(
    root: Path, tmp_path: Path
) -> None:
    before, repository = state(root), Repository.of(root / "train.py")
    assert names(tree.read(repository, "HEAD")) == {"train.py": "A = 2\n", "pkg/new.py": "N = 1\n"}
    here = names(tree.read(repository, "worktree"))
    assert here == {"train.py": "A = 3\n", "pkg/new.py": "N = 1\n", "fresh.py": ""}
    tree.export(tree.read(repository, "first"), tmp_path / "copies")
    copies = Snapshot(tmp_path / "copies")
    assert {file: copy.read_text() for file, copy in copies.copies.items()} == {
        root / "train.py": "A = 1\n",
        root / "old.py": "",
    }
    assert copies.hidden == {root / "fresh.py", root / "pkg/new.py"}, "and an ignored file is not hidden"
    assert state(root) == before


def test_a_mistake_is_one_sentence(root: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nonsense is no commit of .*repo$"):
        tree.read(Repository.of(root / "train.py"), "nonsense")
    with pytest.raises(ConfigError, match="is no commit"):
        tree.read(Repository.of(root / "train.py"), "--all")
    with pytest.raises(ConfigError, match="in no git repository"):
        Repository.of(tmp_path / "train.py")


def test_sweeps_inside_the_repository_are_no_code_of_it(root: Path, command) -> None:
    before = tree.read(Repository(root), "worktree").digest, tree.hidden(tree.read(Repository(root), "first"))
    toy = command(DesignConfig("one_at_a_time", levels={"work": ["single"]}))
    folder = SweepFolder(root / "runs" / "toy")
    launch.prepare(folder, make_plan(toy, Device()), "")
    assert list(folder.code_dir.rglob("*.py")), "copies of code that must not be taken for the user's"
    assert before == (
        tree.read(Repository(root), "worktree").digest,
        tree.hidden(tree.read(Repository(root), "first")),
    )
    assert "runs" not in git(root, "status", "--porcelain")


def test_files_outside_of_the_repository_belong_to_a_version_by_their_names(tmp_path: Path) -> None:
    root = begin(tmp_path / "repo")
    commit(root, {"train.py": "A = 1"}, "one")
    (root / "train.py").write_text("A = 2")
    helper, moved = tmp_path / "a/helper.py", tmp_path / "b/helper.py"
    for file in (helper, moved):
        file.parent.mkdir()
        file.write_text("H = 1")
    first = tree.read(Repository(root), "one", [helper, root / "train.py"])
    assert first.files == {root / "train.py": b"A = 1", helper: b"H = 1"}, "its own are the commit's"
    assert tree.read(Repository(root), "one", [moved]).digest == first.digest
    helper.write_text("H = 2")
    assert tree.read(Repository(root), "one", [helper]).digest != first.digest


def test_where_two_commands_export_a_version_the_first_one_stays_and_nothing_is_left(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, hidden = tmp_path / "copies", tree.hidden

    def slow(version: tree.Tree) -> list[Path]:
        if not place.exists():
            place.mkdir()
            (place / "first").touch()
        return hidden(version)

    monkeypatch.setattr(tree, "hidden", slow)
    tree.export(tree.read(Repository(root), "first"), place)
    assert list(tmp_path.iterdir()) == [place] and list(place.iterdir()) == [place / "first"]
