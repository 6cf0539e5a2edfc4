"""What the tracking configuration may say, and what the shell may say beside it."""

from __future__ import annotations

import pytest

from perfsweep.pipelines.config.tracking import check, contradictions, from_shell
from perfsweep.pipelines.store.options import TrackingConfig
from perfsweep.workloads.errors import ConfigError

REFUSED = [
    ({"project": ""}, "tracking.project has 0 characters"),
    ({"project": "a/b"}, "tracking.project=a/b contains '/'"),
    ({"project": "x" * 129}, "tracking.project has 129 characters"),
    ({"entity": "me?"}, "tracking.entity=me\\? contains '\\?'"),
    ({"base_url": "w.example"}, "tracking.base_url=w.example is no address; write it as https://HOST"),
    ({"base_url": "ftp://w.example"}, "is no address"),
    ({"base_url": "http://w.example:port"}, "is no address"),
]


@pytest.mark.parametrize(("values", "message"), REFUSED)
def test_a_value_that_w_and_b_would_refuse_is_refused_before_anything_is_measured(
    values: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        check(TrackingConfig(**values))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "address",
    [
        "https://me:hidden@w.example",
        "https://hidden@w.example",
        "https://:hidden@w.example",
        "https://me:hidden@w.example:port",  # no address anyway, but for that reason no less a secret
        "https://me:hidden@[w.example",
        "me:hidden@w.example",
    ],
)
def test_an_address_with_credentials_is_refused_without_showing_them(address: str) -> None:
    with pytest.raises(ConfigError, match=r"put credentials into ~/\.netrc") as refused:
        check(TrackingConfig(base_url=address))
    assert "hidden" not in str(refused.value)
    (line,) = contradictions(TrackingConfig(), {"WANDB_BASE_URL": address})
    assert "hidden" not in line


def test_the_defaults_are_fine() -> None:
    check(TrackingConfig())


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
            {"WANDB_PROJECT": "other"},
            "WANDB_PROJECT=other of your shell contradicts tracking.project=perfsweep",
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


@pytest.mark.parametrize(
    "shell",
    [
        {},
        {"WANDB_MODE": "offline"},
        {"WANDB_API_KEY": "k" * 40},
        {"WANDB_ENTITY": "team"},
        {"WANDB_CACHE_DIR": "/x"},
        {"HOME": "/"},
    ],
)
def test_a_variable_that_agrees_or_has_no_say_is_not_mentioned(shell: dict[str, str]) -> None:
    assert contradictions(TrackingConfig(), shell) == []
