"""Whether a server can be used is known within two seconds, in one sentence, without wandb."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest
from loopback import Action, Fault, Loopback
from loopback.server import KEY

from perfsweep.pipelines.publish import server
from perfsweep.pipelines.publish.server import Account, address, api_key, probe
from perfsweep.pipelines.store.options import TrackingConfig

ONLINE = TrackingConfig(mode="online")


def ask(url: str, key: str = KEY, tracking: TrackingConfig = ONLINE) -> str:
    """The problem that a probe finds."""
    found = probe(tracking, {"WANDB_BASE_URL": url, "WANDB_API_KEY": key})
    assert found.problem is not None
    assert "\n" not in found.problem
    return found.problem


def test_no_key_is_one_line(shell: pytest.MonkeyPatch) -> None:
    found = probe(ONLINE, {"WANDB_BASE_URL": "http://127.0.0.1:9"})
    assert (
        found.problem
        == "no API key for http://127.0.0.1:9; run `wandb login --host http://127.0.0.1:9` or set"
        " WANDB_API_KEY"
    )


def test_a_key_that_is_too_short_is_not_shown(shell: pytest.MonkeyPatch) -> None:
    said = ask("http://127.0.0.1:9", key="topsecret")
    assert "has 9 characters and needs 40" in said
    assert "topsecret" not in said


def test_a_wrong_key_is_one_line_and_not_shown(backend: Loopback) -> None:
    said = ask(backend.url, key="f" * 40)
    assert said == f"{backend.url} refused the API key (401); log in again with `wandb login`"


def test_a_port_where_nobody_listens_is_one_line(shell: pytest.MonkeyPatch) -> None:
    assert ask("http://127.0.0.1:9").startswith("http://127.0.0.1:9 cannot be reached (Connection refused)")


def test_a_server_that_never_answers_is_given_up(backend: Loopback) -> None:
    with backend.showing(Fault("", Action.HANG)):
        assert ask(backend.url) == f"{backend.url} gave no answer within 1.5 s"


def test_a_name_that_takes_long_to_resolve_is_given_up(shell: pytest.MonkeyPatch) -> None:
    answered = threading.Event()

    def slow(*_: object, **__: object) -> list[object]:
        answered.wait(600)
        return []

    shell.setattr(socket, "getaddrinfo", slow)
    assert ask("https://w.example") == "https://w.example gave no answer within 1.5 s"
    answered.set()


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Fault("", Action.STATUS, status=503), "answered with status 503"),
        (Fault("", Action.DROP), "dropped the connection"),
        (Fault("", Action.TRUNCATE), "half an answer"),
    ],
)
def test_a_broken_server_is_one_line(backend: Loopback, fault: Fault, said: str) -> None:
    with backend.showing(fault):
        assert said in ask(backend.url)


def test_the_key_of_a_host_is_read_from_netrc(shell: pytest.MonkeyPatch) -> None:
    (Path(os.environ["HOME"]) / ".netrc").write_text(
        "machine w.example:8080\n  login user\n  password " + "k" * 40
    )
    assert api_key("https://w.example:8080", {}) == "k" * 40
    assert api_key("https://w.example", {}) is None, "W&B would not find it there"
    assert api_key("https://other.example", {}) is None


@pytest.mark.parametrize("content", ["\x00\xff", "machine w.example login"])
def test_a_damaged_netrc_holds_no_key(shell: pytest.MonkeyPatch, content: str) -> None:
    (Path(os.environ["HOME"]) / ".netrc").write_text(content)
    assert api_key("https://w.example", {}) is None


@pytest.mark.parametrize("answer", [[], {"data": {"viewer": None}}])
def test_an_answer_that_names_nobody_is_trouble_unless_wandb_itself_brings_the_token(answer: object) -> None:
    said = "http://here does not know the account of the API key; log in again"
    assert server._account(answer, "http://here", "team", anonymous=False) == Account(problem=said)
    assert server._account(answer, "http://here", "team", anonymous=True) == Account()


def test_an_account_may_write_to_itself_its_default_and_its_teams() -> None:
    viewer = {"entity": "mine", "username": "me", "teams": {"edges": [{"node": {"name": "team"}}]}}
    answer = {"data": {"viewer": viewer}}
    for entity, found in ((None, "mine"), ("me", "me"), ("team", "team"), ("mine", "mine")):
        assert server._account(answer, "http://here", entity, anonymous=False) == Account(entity=found)
    alone = {"data": {"viewer": {"username": "me", "teams": None}}}
    refused = server._account(alone, "http://here", "team", anonymous=False)
    assert refused.problem is not None and refused.problem.endswith("; choose from: me")


def test_a_damaged_settings_file_is_none_and_its_folder_can_be_elsewhere(
    shell: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "settings").write_text("[default]\nbase_url = https://c.example")
    own = {"WANDB_CONFIG_DIR": str(tmp_path)}
    assert address(TrackingConfig(), own) == "https://c.example"
    (tmp_path / "settings").write_text("base_url = https://c.example")
    nowhere = {"WANDB_CONFIG_DIR": str(tmp_path / "nowhere")}
    assert address(TrackingConfig(), own) == address(TrackingConfig(), nowhere) != "https://c.example"
