"""Lines of commits as git has them: along first parents, oldest first, and nothing where there is no line."""

from __future__ import annotations

from pathlib import Path

import pytest
from git_repository import Planned, begin, commit, git, imported, state

from perfsweep.pipelines.versions.repository import Repository, submodules
from perfsweep.workloads.errors import ConfigError


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A line of three, a branch of two that was merged into it, and one commit after that."""
    return imported(
        tmp_path_factory.mktemp("git") / "repo",
        [
            Planned("one", {"a.py": "1\n"}),
            Planned("two", {"a.py": "2\n"}, ("one",)),
            Planned("aside", {"b.py": "1\n"}, ("one",), "side"),
            Planned("further", {"b.py": "2\n"}, ("aside",), "side"),
            Planned("joined", {"b.py": "2\n"}, ("two", "further")),
            Planned("prose", {"README.md": "prose"}, ("joined",)),
            Planned("apart", {"c.py": ""}, (), "other"),
        ],
    )


def test_a_line_follows_first_parents_oldest_first(root: Path) -> None:
    before = state(root)
    line = Repository(root).first_parents("one", "main")
    assert [one.subject for one in line] == ["two", "joined", "prose"]
    assert [one.is_merge for one in line] == [False, True, False]
    assert line[1].hash == git(root, "rev-parse", "joined")
    assert line[1].parents == (git(root, "rev-parse", "two"), git(root, "rev-parse", "further"))
    assert state(root) == before


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("nowhere", "main", "nowhere is no commit of"),
        ("main", "main~0", "main and main~0 are the same commit; name two"),
        ("two", "further", "further does not descend from two; begin at {one}, which both descend from"),
    ],
)
def test_two_commits_without_a_line_are_refused(root: Path, old: str, new: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        Repository(root).first_parents(old, new)
    assert str(refusal.value).startswith(sentence.format(one=git(root, "rev-parse", "one")[:12]))


def test_a_shallow_clone_says_what_it_may_lack(root: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--depth", "1", "--no-single-branch", root.as_uri(), "copy")
    with pytest.raises(ConfigError, match="a shallow clone, which may lack it: run `git fetch --unshallow`"):
        Repository(tmp_path / "copy").first_parents("origin/side", "origin/main")


def test_git_that_is_not_installed_is_asked_for(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(root))
    with pytest.raises(ConfigError, match="versions are read by git, which cannot be found; install it"):
        Repository(root).commit("main")


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A repository of files with odd names and contents, links, and a submodule."""
    root = begin(tmp_path / "odd")
    (root / "deep").mkdir()
    (root / "deep/up.py").symlink_to("../two words.py")
    (root / "out.py").symlink_to("/nowhere.py")
    files = {"two words.py": "A\n\nB\n", "empty.py": "", "line\nbreak.py": "C", ".gitignore": "made.py"}
    commit(root, files, "one")
    git(root, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},lib")
    git(root, "commit", "-q", "-m", "with")
    return root


def test_files_of_a_commit_are_read_whatever_they_are_called(odd: Path) -> None:
    repository = Repository(odd)
    entries = repository.entries("HEAD")
    files = {"two words.py": b"A\n\nB\n", "empty.py": b"", "line\nbreak.py": b"C"}
    assert set(entries) == {*files, "deep/up.py", "out.py", ".gitignore", "lib"}
    assert repository.contents(entries, files) == files
    linked = repository.contents(entries, ["empty.py", "deep/up.py", "out.py"])
    assert linked == {"empty.py": b"", "deep/up.py": b"A\n\nB\n"}, "and a link out of it has none"
    assert submodules(entries) == ["lib"]


def test_the_checkout_has_what_is_new_and_not_what_is_ignored_or_gone(odd: Path) -> None:
    repository = Repository(odd)
    (odd / "lib").mkdir()
    assert (repository.is_dirty, repository.changed_paths()) == (False, [])
    (odd / "made.py").touch()
    assert not repository.is_dirty
    (odd / "new.py").touch()
    assert (repository.is_dirty, repository.changed_paths()) == (True, [])
    (odd / "empty.py").unlink()
    (odd / "two words.py").write_text("other")
    assert sorted(repository.changed_paths()) == ["empty.py", "two words.py"]
    here = set(repository.checkout_paths())
    assert {"new.py", "line\nbreak.py", "two words.py"} <= here
    assert not here & {"made.py", "empty.py", "lib", ""}


def test_code_that_a_clone_left_out_is_named(odd: Path) -> None:
    repository = Repository(odd)
    entries = repository.entries("HEAD")
    blob = entries["two words.py"].blob
    (odd / ".git/objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(ConfigError, match=rf"git has not got {blob}, which this commit needs; fetch it$"):
        repository.contents(entries, ["empty.py", "two words.py"])


def test_a_hook_of_another_repository_does_not_change_which_one_is_read(
    root: Path, odd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(odd / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(odd / ".git/index"))
    assert Repository.of(root / "a.py").root == root
    assert set(Repository(root).checkout_paths()) == {"a.py", "b.py", "README.md"}
