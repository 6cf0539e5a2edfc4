"""What a person hears of versions before they are measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from git_repository import begin, commit

from perfsweep.pipelines.store.schema import Version
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
        (("one", "one"), None),
    ],
)
def test_data_that_differs_is_named_and_code_and_prose_are_not(
    root: Path, commits: tuple, files: str | None
) -> None:
    found = list(notices([version(root, name) for name in commits]))
    assert len(found) == (files is not None)
    assert files is None or found[0].startswith(f"{files}no code, and not the same in all versions")


def test_packages_that_differ_are_named_first_those_that_all_environments_have() -> None:
    first, second = {"torch": "2.13", "a": "1", "b": "1", "c": "3"}, {"torch": "2.14", "b": "2", "c": "3"}
    made = []
    for name, packages in (("1", first), ("2", second), ("3", {"b": "1"})):
        own = {"interpreter": "", "prefix": "", "abi": "", "installed": "", "python": f"3.1{name}"}
        own |= {"packages": packages}
        made.append(version(None, None, levels={"environment": name}, environment=own))
    assert list(notices(made)) == [
        "environment=1: Python 3.11, torch 2.13",
        "environment=2: Python 3.12, torch 2.14",
        "environment=3: Python 3.13, torch unknown",
        "packages that differ between environments: b 1 / 2 / 1, a 1 / none / none, c 3 / 3 / none",
    ]


def test_the_checkout_differs_from_its_commit_by_what_was_edited(root: Path) -> None:
    file = root / "data/d.csv"
    before = file.read_text()
    assert not list(notices([version(root, "few"), version(root, None)]))
    file.write_text("edited")
    (found,) = notices([version(root, "few"), version(root, None)])
    file.write_text(before)
    assert found.startswith("data/d.csv: ")
