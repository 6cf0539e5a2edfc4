"""Lines of commits as git has them: along first parents, oldest first, and nothing where there is no line."""

from __future__ import annotations

from pathlib import Path

import pytest
from git_repository import Planned, git, imported, state

from pipelines.versions import tree
from pipelines.versions.repository import Repository
from workloads.errors import ConfigError


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


def test_configuration_of_the_user_changes_no_line(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Repository(root).first_parents("one", "main")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "3")
    for number, (key, value) in enumerate(
        [("log.showSignature", "true"), ("color.ui", "always"), ("format.pretty", "fuller")]
    ):
        monkeypatch.setenv(f"GIT_CONFIG_KEY_{number}", key)
        monkeypatch.setenv(f"GIT_CONFIG_VALUE_{number}", value)
    assert Repository(root).first_parents("one", "main") == plain


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("nowhere", "main", "nowhere is no commit of"),
        ("main", "main~0", "main and main~0 are the same commit; name two"),
        ("two", "further", "further does not stand on two; begin at {one}, which both stand on"),
        ("main", "apart", "apart does not stand on main"),
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


def test_code_is_told_apart_without_reading_it(root: Path) -> None:
    repository = Repository(root)
    same = [tree.blobs(repository, name) for name in ("joined", "prose")]
    assert same[0] == same[1]
    assert len({tree.blobs(repository, name) for name in ("one", "two", "joined", "aside")}) == 4
