"""Which versions `perfsweep history` follows, and with which status it ends."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perfsweep.pipelines.commands import comparison as module
from perfsweep.pipelines.commands.comparison import history
from perfsweep.workloads.errors import ConfigError


class Read:
    """What lies in folders: stored baselines, sweeps, and sweeps whose arms are commits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, slower: bool) -> None:
        self.followed: tuple[Any, ...] = ()
        self.printed = list[Any]()
        self.slower = slower
        self.console: Any = SimpleNamespace(print=lambda text, **how: self.printed.append(text))
        self.aside: Any = SimpleNamespace(print=lambda text, **how: self.printed.append(f"aside: {text}"))
        monkeypatch.setattr(module, "stored_baseline", lambda path: path if path.endswith(".json") else None)
        monkeypatch.setattr(module.api, "open_sweep", self.open)
        monkeypatch.setattr(module, "declared_by", lambda manifest: SimpleNamespace(unit="rows"))
        monkeypatch.setattr(module, "commit_versions", self.commits)
        monkeypatch.setattr(module, "follow", self.follow)
        monkeypatch.setattr(module, "console_here", lambda: self.console)
        monkeypatch.setattr(module, "error_console", lambda: self.aside)
        monkeypatch.setattr(module, "print_json", lambda found: self.printed.append(("json", found)))
        monkeypatch.setattr(module, "print_csv", lambda schema, rows: self.printed.append(("csv", rows)))
        monkeypatch.setattr(module.reporting, "show", lambda console, found: self.printed.append("table"))
        monkeypatch.setattr(module.reporting, "csv_rows", lambda found: "rows")
        monkeypatch.setattr(module.reporting, "history_object", lambda found, *rest: rest)
        monkeypatch.setattr(
            module.history_picture,
            "write_history",
            lambda option, file, found: self.printed.append(f"drawn {file}"),
        )

    def open(self, path: str) -> Any:
        return SimpleNamespace(manifest=path, trials="trials", baseline=f"baseline of {path}")

    def commits(self, path: str, unit: str, trials: str) -> Any:
        assert (unit, trials) == ("rows", "trials")
        return SimpleNamespace(baselines=["c1", "c2"]) if path.endswith("commits") else None

    def follow(self, *given: Any) -> Any:
        self.followed = given
        return SimpleNamespace(arms=[SimpleNamespace(slower=False), SimpleNamespace(slower=self.slower)])


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda slower=False: Read(monkeypatch, slower)


@pytest.mark.parametrize(
    ("paths", "baselines", "paired"),
    [
        (["a.json", "b"], ["a.json", "baseline of b"], False),
        (["commits"], ["c1", "c2"], True),
        (["commits", "b"], ["c1", "c2", "baseline of b"], False),
        (["b", "commits"], ["baseline of b", "c1", "c2"], False),
    ],
)
def test_versions_are_those_of_each_folder_in_their_order(
    read: Any, paths: list, baselines: list, paired: bool
) -> None:
    found = read()
    assert history(paths, arm=["amp=on"], margin=0.2) == 0
    assert found.followed[:3] == (baselines, ["amp=on"], 0.2)
    assert (found.followed[3] is not None) is paired


@pytest.mark.parametrize(("slower", "status"), [(True, 1), (False, 0)])
def test_an_arm_that_became_slower_is_status_1(read: Any, slower: bool, status: int) -> None:
    found = read(slower)
    assert history(["a.json"]) == status
    assert found.printed == ["table"] and found.followed[2] == 0.05
    assert history(["a.json"], as_json=True) == status
    assert history(["a.json"], as_csv=True) == status
    assert found.printed[1:] == [("json", (status, None)), ("csv", "rows")]


@pytest.mark.parametrize(
    ("asked", "answer", "told"),
    [
        ({}, "table", "picture: arms.svg"),
        ({"as_json": True}, ("json", (0, "arms.svg")), "aside: picture: arms.svg"),
        ({"as_csv": True}, ("csv", "rows"), "aside: picture: arms.svg"),
    ],
    ids=["a person", "JSON", "CSV"],
)
def test_a_picture_is_drawn_and_told_where_no_program_reads(
    read: Any, asked: dict[str, bool], answer: Any, told: str
) -> None:
    found = read()
    history(["a.json"], picture="arms.svg", **asked)
    assert found.printed == ["drawn arms.svg", answer, told]


def test_mistakes_are_told_before_anything_is_read(read: Any) -> None:
    found = read()
    with pytest.raises(ConfigError, match="--json and --csv are different answers"):
        history(["a.json"], as_json=True, as_csv=True)
    with pytest.raises(ConfigError, match=r"arms\.jpeg"):
        history(["a.json"], picture=str(Path("arms.jpeg")))
    assert found.followed == ()
