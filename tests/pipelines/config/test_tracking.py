"""What tracking may say, what the shell may say, and what of it W&B gets to see."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from perfsweep.pipelines.config.tracking import check, contradictions, from_shell, guarded, own_environment
from perfsweep.pipelines.store.options import TrackingConfig
from perfsweep.workloads.errors import ConfigError

REFUSED = [
    ({"project": ""}, "tracking.project has 0 characters"),
    ({"project": "a/b"}, "tracking.project=a/b contains '/'"),
    ({"project": "x" * 129}, "tracking.project has 129 characters"),
    ({"base_url": "w.example"}, "tracking.base_url=w.example is no address; write it as https://HOST"),
]


@pytest.mark.parametrize(("values", "message"), REFUSED)
def test_a_value_that_w_and_b_would_refuse_is_refused_before_anything_is_measured(
    values: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        check(TrackingConfig(**values))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "address", ["https://me:hidden@w.example", "https://me:hidden@[w.example", "me:hidden@w.example"]
)
def test_an_address_with_credentials_is_refused_without_showing_them(address: str) -> None:
    with pytest.raises(ConfigError, match=r"put credentials into ~/\.netrc") as refused:
        check(TrackingConfig(base_url=address))
    assert "hidden" not in str(refused.value)
    (line,) = contradictions(TrackingConfig(), {"WANDB_BASE_URL": address})
    assert "hidden" not in line


def test_the_shell_fills_what_the_configuration_leaves_open() -> None:
    shell = {"WANDB_ENTITY": "team", "WANDB_BASE_URL": "https://w.example", "WANDB_PROJECT": "x"}
    assert from_shell(TrackingConfig(), shell) == {"entity": "team", "base_url": "https://w.example"}
    assert from_shell(TrackingConfig(entity="own", base_url="https://own.example"), shell) == {}


def test_the_shell_cannot_fill_in_what_would_be_refused() -> None:
    shell = {"WANDB_ENTITY": "a/b", "WANDB_BASE_URL": "https://me:hidden@w.example"}
    assert from_shell(TrackingConfig(), shell) == {}
    said = contradictions(TrackingConfig(), shell)
    assert [line.split()[0] for line in said] == ["WANDB_BASE_URL", "WANDB_ENTITY"]
    assert not any("hidden" in line for line in said)


@pytest.mark.parametrize(
    ("shell", "said"),
    [
        (
            {"WANDB_MODE": "online"},
            "WANDB_MODE=online of your shell contradicts tracking.mode=offline, which holds; ",
        ),
        (
            {"WANDB_RUN_ID": "r"},
            "WANDB_RUN_ID of your shell has no effect: perfsweep sets this itself; unset it",
        ),
    ],
)
def test_a_variable_that_contradicts_is_named_in_one_sentence(shell: dict[str, str], said: str) -> None:
    (line,) = contradictions(TrackingConfig(), shell)
    assert line.startswith(said)


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


def test_of_the_shell_only_where_large_files_go_is_seen_and_it_is_put_back_whatever_happens(
    tmp_path: Path,
) -> None:
    with pytest.raises(ValueError, match="wrong"), own_environment(tmp_path):
        inside = seen()
        os.environ["WANDB_NEW"] = "left behind"
        del os.environ["WANDB_CACHE_DIR"]
        raise ValueError("wrong")
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
