"""What commands say about tracking before measuring: a line for each thing that will not be as asked."""

from __future__ import annotations

import os

import pytest
from loopback import Loopback

from pipelines.api import prepare_tracking
from pipelines.config.types import SweepCommand, TrackingConfig


def said(**tracking: object) -> tuple[list[str], TrackingConfig]:
    """Lines for a person, and the tracking that results."""
    command = SweepCommand(tracking=TrackingConfig(**tracking))  # type: ignore[arg-type]
    return prepare_tracking(command), command.tracking


def test_offline_says_nothing_and_asks_nobody(backend: Loopback) -> None:
    assert said()[0] == []
    assert backend.requests == []


def test_a_good_account_needs_no_word(backend: Loopback) -> None:
    assert said(mode="online")[0] == []


def test_what_the_shell_fills_in_is_kept_for_every_later_publisher(
    backend: Loopback, shell: pytest.MonkeyPatch
) -> None:
    shell.setenv("WANDB_ENTITY", "team")
    lines, tracking = said(mode="online")
    assert (lines, tracking.entity, tracking.base_url) == ([], "team", backend.url)


def test_no_account_is_one_line_and_measuring_goes_on(backend: Loopback, shell: pytest.MonkeyPatch) -> None:
    shell.delenv("WANDB_API_KEY")
    (line,), _ = said(mode="online")
    assert line.startswith(
        f"W&B: no API key for {backend.url}; run `wandb login --host {backend.url}` or set WANDB_API_KEY; "
    )
    assert line.endswith("run folders are written instead, and `perfsweep publish` uploads them later")


def test_each_contradiction_is_one_line(shell: pytest.MonkeyPatch) -> None:
    shell.setenv("WANDB_PROJECT", "other")
    shell.setenv("WANDB_MODE", "online")
    lines, _ = said()
    assert [line.split()[1].partition("=")[0] for line in lines] == ["WANDB_MODE", "WANDB_PROJECT"]


def test_disabled_tracking_has_nothing_to_contradict(shell: pytest.MonkeyPatch) -> None:
    shell.setenv("WANDB_PROJECT", "other")
    assert said(mode="disabled")[0] == []
    assert os.environ["WANDB_PROJECT"] == "other"
