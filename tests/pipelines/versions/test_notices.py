"""What a person hears of versions before they are measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from git_repository import begin, commit, git

from perfsweep.pipelines.store.schema import Environment, Version
from perfsweep.pipelines.versions.environments import environment_lines
from perfsweep.pipelines.versions.tree import notices


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = begin(tmp_path_factory.mktemp("git") / "repo")
    data = {f"data/{letter}.csv": "1" for letter in "abcd"}
    commit(root, {"train.py": "A = 1", "README.md": "one", **data}, "one")
    commit(root, {"train.py": "A = 2", "README.md": "two", **dict.fromkeys(data, "2")}, "all")
    commit(root, {"data/a.csv": "1", "data/b.csv": "1", "data/c.csv": "1"}, "few")
    return root


def version(root: Path | None, commit: str | None, **own: object) -> Version:
    given = {"digest": str(commit), "code": "", "config": {}, "repository": str(root) if root else ""}
    return Version.model_validate({"levels": {"commit": str(commit)}, "commit": commit, **given, **own})


@pytest.mark.parametrize(
    ("commits", "files"),
    [
        (("one", "all"), "data/a.csv, data/b.csv, data/c.csv and 1 more: "),
        (("all", "few"), "data/a.csv, data/b.csv, data/c.csv: "),
        (("one", "few"), "data/d.csv: "),
        (("one", "one"), None),
    ],
)
def test_data_that_differs_is_named_and_code_and_prose_are_not(
    root: Path, commits: tuple, files: str | None
) -> None:
    found = list(notices([version(root, name) for name in commits]))
    assert len(found) == (files is not None)
    assert files is None or found[0].startswith(f"{files}no code, and not the same in all versions")


def test_the_checkout_differs_from_its_commit_by_what_was_edited(root: Path) -> None:
    file = root / "data/d.csv"
    before = file.read_text()
    assert not list(notices([version(root, "few"), version(root, None)]))
    file.write_text("edited")
    (found,) = notices([version(root, "few"), version(root, None)])
    file.write_text(before)
    assert found.startswith("data/d.csv: ")


def test_versions_without_a_repository_have_no_files() -> None:
    assert list(notices([version(None, "a"), version(None, "b")])) == []


def environment(level: str, toggle: str = "environment", **packages: str) -> Version:
    own = Environment(interpreter="", prefix="", python="3.12", abi="", packages=packages)
    return version(None, None, levels={toggle: level, "commit": "x"}, environment=own)


def test_environments_have_their_python_and_torch() -> None:
    one = environment("a", numpy="2.0")
    assert list(environment_lines([one, one])) == ["environment=a: Python 3.12, torch unknown"]
    assert list(environment_lines([environment("a", toggle="other"), version(None, "x")])) == []


def test_many_packages_that_differ_are_counted() -> None:
    names = [f"p{number}" for number in range(8)]
    both = [environment("a", **dict.fromkeys(names, "1")), environment("b", **dict.fromkeys(names, "2"))]
    line = list(environment_lines(both))[-1]
    assert line.endswith("p4 1 / 2, p5 1 / 2 and 2 more")


def test_submodules_are_said_to_be_the_checkouts(tmp_path: Path) -> None:
    root = begin(tmp_path / "repo")
    commit(root, {"train.py": ""}, "before")
    for name in ("lib", "data"):
        git(root, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},{name}")
    git(root, "commit", "-q", "-m", "with")
    *_, line = notices([version(root, "before"), version(root, None)])
    assert line == "data, lib: submodules, of which all versions import what is checked out"
    assert not list(notices([version(root, "before")]))
