"""Views that a server keeps: which is replaced, which is made anew, and with which settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from recorded import build

from perfsweep.pipelines.publish import saved_views
from perfsweep.pipelines.publish.saved_views import Identity, save_view, tracking_of
from perfsweep.pipelines.publish.server import Account
from perfsweep.pipelines.store.options import TrackingConfig
from perfsweep.workloads.errors import ConfigError

ONLINE = TrackingConfig(mode="online", project="speed", entity="own", base_url="http://there/")


@pytest.mark.parametrize(
    ("entity", "project", "found"), [("other", None, ("other", "speed")), (None, "slow", ("team", "slow"))]
)
def test_another_entity_or_project_takes_the_place_of_the_sweeps(
    tmp_path: Path, entity: str | None, project: str | None, found: tuple[str, str]
) -> None:
    tracking = tracking_of(build(tmp_path / "sweep").manifest, entity, project)
    assert (tracking.entity, tracking.project) == found


class Saves:
    """Saves a view, unless it is in the place of one that was deleted."""

    def __init__(self, deleted: bool = False, refused: bool = False) -> None:
        self.deleted, self.refused = deleted, refused
        self.asked: list[tuple[str, Identity | None]] = []

    def __call__(self, entity: str, known: Identity | None) -> tuple[str, Identity]:
        self.asked.append((entity, known))
        if self.refused or (self.deleted and known):
            raise ValueError("no such view")
        return "http://there/view", {"id": f"{len(self.asked)}"}


@pytest.fixture(autouse=True)
def account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_views, "probe", lambda tracking: Account(entity="team"))


def test_built_again_it_replaces_the_one_of_the_same_place(tmp_path: Path) -> None:
    file, saves = tmp_path / "views.json", Saves()
    assert save_view(ONLINE, file, "view", saves) == "http://there/view"
    save_view(ONLINE, file, "view", saves)
    assert saves.asked == [("team", None), ("team", {"id": "1"})]
    assert json.loads(file.read_text()) == {"http://there/team/speed": {"id": "2"}}
    file.write_text("{")
    save_view(ONLINE, file, "view", saves)
    assert saves.asked[2:] == [("team", None)], "of a damaged file it is another view"


def test_one_that_was_deleted_is_made_anew(tmp_path: Path) -> None:
    file, saves = tmp_path / "views.json", Saves(deleted=True)
    save_view(ONLINE, file, "view", saves)
    save_view(ONLINE, file, "view", saves)
    assert [known for _, known in saves.asked] == [None, {"id": "1"}, None]


def test_of_two_refusals_the_last_is_told(tmp_path: Path) -> None:
    file = tmp_path / "views.json"
    save_view(ONLINE, file, "view", Saves())

    def refuse(entity: str, known: Identity | None) -> tuple[str, Identity]:
        raise ValueError("it was deleted" if known else "the project is closed")

    with pytest.raises(ConfigError, match=r"did not take the view \(.*the project is closed\)"):
        save_view(ONLINE, file, "view", refuse)


def test_a_server_that_refuses_it_or_cannot_be_used_leaves_a_file_as_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"^http://there did not take the view \(.*no such view") as refused:
        save_view(ONLINE, tmp_path / "views.json", "view", Saves(refused=True))
    assert str(refused.value).endswith("; --file PATH writes it without a server")
    monkeypatch.setattr(saved_views, "probe", lambda tracking: Account(problem="no key"))
    with pytest.raises(ConfigError, match=r"^no key; --file PATH writes the specification without a server$"):
        save_view(ONLINE, tmp_path / "views.json", "view", Saves())
