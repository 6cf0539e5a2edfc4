"""Which clock is believed, by what disturbed the trials, and the words that say why."""

from __future__ import annotations

import pytest

from perfsweep.pipelines.statistics.clocks import Clock, ClockChoice, Conditions, choose_clock


def trials(**arms: tuple[int, int]) -> list[Conditions]:
    """Eight trials for each arm: how many were crowded, and in how many it computed alone."""
    return [
        Conditions(arm, crowded=number < crowded, alone=number < alone)
        for arm, (crowded, alone) in arms.items()
        for number in range(8)
    ]


TOO_LONG = "others had the cores of {} of {} timing trials for too long"


@pytest.mark.parametrize(
    ("met", "choice"),
    [
        ([], ClockChoice(Clock.WALL, "", alone=False)),
        (trials(naive=(0, 8)), ClockChoice(Clock.WALL, "", alone=True)),
        (trials(naive=(1, 8)), ClockChoice(Clock.WALL, "", alone=True)),
        (trials(naive=(1, 7)), ClockChoice(Clock.WALL, "", alone=False)),
        (
            trials(naive=(2, 8)),  # a quarter is enough
            ClockChoice(
                Clock.CPU, f"{TOO_LONG.format(2, 8)}, and every arm computes in one thread", alone=True
            ),
        ),
        (
            trials(naive=(8, 8), slab=(0, 7)),
            ClockChoice(
                Clock.WALL, f"{TOO_LONG.format(8, 16)}; slab uses more than one thread, or waits", alone=False
            ),
        ),
        (
            trials(naive=(8, 8), slab=(0, 7), idle=(0, 0), prefetch=(0, 6)),
            ClockChoice(
                Clock.WALL,
                f"{TOO_LONG.format(8, 32)}; idle and 2 more use more than one thread, or wait",
                alone=False,
            ),
        ),
    ],
)
def test_cpu_time_stands_in_where_many_trials_were_crowded_and_every_arm_computed_alone(
    met: list[Conditions], choice: ClockChoice
) -> None:
    assert choose_clock(met) == choice


@pytest.mark.parametrize(("clock", "figure"), [(Clock.WALL, "ns_per_unit"), (Clock.CPU, "cpu_ns_per_unit")])
def test_each_clock_reads_a_column_of_its_own(clock: Clock, figure: str) -> None:
    assert clock.figure == figure
