"""What W&B is told and gets to see: nothing of the shell but what a person means it to."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from perfsweep.pipelines.config.wandb_settings import guarded, own_environment, settings, settings_of

SHELL = {
    "WANDB_RUN_ID": "theirs",
    "WANDB_MODE": "online",
    "WANDB_API_KEY": "secret",
    "WANDB_CACHE_DIR": "/big",
    "WANDB_CONFIG_DIR": "/theirs",
    "OTHER": "kept",
}


@pytest.fixture(autouse=True)
def shell(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    for name, value in SHELL.items():
        monkeypatch.setenv(name, value)


def seen() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name in SHELL or name.startswith("WANDB_")}


def test_offline_nothing_of_the_shell_is_seen_but_where_large_files_go(tmp_path: Path) -> None:
    with own_environment(tmp_path):
        inside = seen()
    assert seen() == SHELL
    assert inside == {
        "OTHER": "kept",
        "WANDB_CACHE_DIR": "/big",
        "WANDB_DATA_DIR": str(tmp_path / "data"),
        "WANDB_CONFIG_DIR": str(tmp_path / "config"),
        "WANDB_DIR": str(tmp_path / "api"),
        "WANDB_SILENT": "true",
        "WANDB_ERROR_REPORTING": "false",
    }


def test_a_server_gets_the_key_and_the_shell_is_put_back_whatever_happens(tmp_path: Path) -> None:
    wandb = own_environment(tmp_path, "https://wandb.example", credentials=True)
    with pytest.raises(ValueError, match="wrong"), wandb:
        inside = seen()
        os.environ["WANDB_NEW"] = "left behind"
        del os.environ["WANDB_API_KEY"]
        raise ValueError("wrong")
    assert (inside["WANDB_API_KEY"], inside["WANDB_BASE_URL"]) == ("secret", "https://wandb.example")
    assert "WANDB_RUN_ID" not in inside
    assert seen() == SHELL


def test_settings_of_a_run_win_over_those_of_every_run(tmp_path: Path) -> None:
    found = settings(tmp_path, mode="online", run_id="a")
    assert (found["root_dir"], found["mode"], found["run_id"]) == (str(tmp_path), "online", "a")
    assert settings(tmp_path)["mode"] == "offline"


def test_settings_that_this_wandb_does_not_know_are_left_out_and_named() -> None:
    class Settings(SimpleNamespace):
        model_fields = ("mode", "silent")

    wandb = SimpleNamespace(Settings=Settings, __version__="0.1")
    made, remark = settings_of(wandb, {"x_new": 1, "mode": "offline", "x_later": 2})
    assert made == Settings(mode="offline")
    assert remark == "wandb 0.1 knows no setting x_later, x_new: left out"
    assert settings_of(wandb, {"silent": True}) == (Settings(silent=True), "")
    old = SimpleNamespace(Settings=SimpleNamespace, __version__="0.1")
    assert settings_of(old, {"any": 1}) == (SimpleNamespace(any=1), ""), "one that tells no names is believed"


def test_whatever_wandb_raises_is_a_line_and_an_interruption_passes() -> None:
    problems: list[str] = []
    for error in (OSError("  \nno route\nto host"), ValueError(), asyncio.CancelledError("gone")):
        with guarded(problems):
            raise error
    assert problems == ["OSError: no route", "ValueError: no message", "CancelledError: gone"]
    for passing in (KeyboardInterrupt(), SystemExit(1)):
        with pytest.raises(type(passing)), guarded(problems):
            raise passing
    assert len(problems) == 3
