"""Publishing between rounds: within its share of the time, never fatal, and silent after one failure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recorded import Built, build

from perfsweep.pipelines.publish.between_rounds import FIRST_COST_S, PATIENCE_S, Feeder
from perfsweep.pipelines.publish.published import Published


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Publisher:
    """Takes a known time and answers as it is told."""

    def __init__(
        self, clock: Clock, cost_s: float, answer: Callable[[], Published] = lambda: Published(mode="online")
    ) -> None:
        self.clock, self.cost_s, self.answer = clock, cost_s, answer
        self.asked: list[tuple[Any, ...]] = []

    def __call__(self, *given: Any) -> Published:
        self.asked.append(given)
        self.clock.now += self.cost_s
        return self.answer()


def fed(built: Built, publisher: Publisher, rounds: int, round_s: float) -> None:
    feeder = Feeder(built.folder, built.manifest, "p000", publisher, publisher.clock)
    for _ in range(rounds):
        publisher.clock.now += round_s
        feeder.between_rounds()


@pytest.fixture
def sweep(tmp_path: Path) -> Built:
    """A sweep that goes to a server."""
    return build(tmp_path / "demo", mode="online")


@pytest.mark.parametrize("cost_s", [0.5, 30.0])
@pytest.mark.parametrize("round_s", [0.3, 500.0])
def test_feeding_takes_no_more_than_its_share(sweep: Built, cost_s: float, round_s: float) -> None:
    clock = Clock()
    publisher = Publisher(clock, cost_s)
    fed(sweep, publisher, 2000, round_s)
    assert len(publisher.asked) > 1 or clock.now < 1000.0 + 200 * cost_s
    spent = len(publisher.asked) * cost_s
    # The first feeding is bought with the expected cost; each later one with what the one before it took.
    assert spent - max(0.0, cost_s - FIRST_COST_S) <= 0.02 * (clock.now - 1000.0)


def test_only_the_packs_own_rounds_are_sent_with_little_patience(sweep: Built) -> None:
    publisher = Publisher(Clock(), 1.0)
    fed(sweep, publisher, 1, 1000.0)
    assert publisher.asked == [(sweep.folder, ["p000"], "online", PATIENCE_S)]


def _raises() -> Published:
    raise ConnectionResetError("the background process is gone")


@pytest.mark.parametrize("answer", [lambda: Published(warning="2 of 2 runs lack 50 rows"), _raises])
def test_after_a_failure_it_warns_once_and_rests(
    sweep: Built, capsys: pytest.CaptureFixture[str], answer: Callable[[], Published]
) -> None:
    publisher = Publisher(Clock(), 1.0, answer)
    fed(sweep, publisher, 5, 1000.0)
    assert len(publisher.asked) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("W&B: ")


def test_a_server_that_cannot_be_reached_is_asked_once(
    sweep: Built, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = Published(mode="offline", notice="gone; run folders are written instead")
    publisher = Publisher(Clock(), 1.0, lambda: gone)
    fed(sweep, publisher, 3, 1000.0)
    assert [mode for _, _, mode, _ in publisher.asked] == ["online"]
    assert capsys.readouterr().out == "W&B: gone; run folders are written instead\n"


@pytest.mark.parametrize("mode", ["offline", "disabled"])
def test_run_folders_wait_for_the_end_of_the_sweep(tmp_path: Path, mode: str) -> None:
    publisher = Publisher(Clock(), 1.0)
    fed(build(tmp_path / "demo", mode=mode), publisher, 3, 1000.0)
    assert publisher.asked == []
