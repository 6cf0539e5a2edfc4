"""Limits of a search: one for memory whichever way it was given, and all of them in words."""

from __future__ import annotations

import pytest

from perfsweep.pipelines.config.types import MeasureConfig, TuneCommand, TuneConfig
from perfsweep.pipelines.search.limits import budget, limit_words, refuse_too_much_memory, take_memory
from perfsweep.workloads.errors import ConfigError

GIB = 2**30


def command(memory_gib: float | None = None, **tune: object) -> TuneCommand:
    return TuneCommand(
        workload={"name": "toys.spinner:Spinner"},
        measure=MeasureConfig(memory_gib=memory_gib),
        tune=TuneConfig(**tune),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("measure", "search", "taken"), [(None, None, None), (2.0, None, 2.0), (None, 3.0, 3.0), (2.0, 2.0, 2.0)]
)
def test_memory_may_be_limited_either_way(
    measure: float | None, search: float | None, taken: float | None
) -> None:
    changed = command(measure)
    take_memory(changed, "tune", search)
    assert changed.measure.memory_gib == taken


def test_two_limits_that_contradict_one_another_are_refused_and_both_named() -> None:
    with pytest.raises(ConfigError, match=r"^tune\.memory_gib=3 and measure\.memory_gib=2 contradict"):
        take_memory(command(2.0), "tune", 3.0)


def test_only_a_limit_beyond_the_device_is_refused() -> None:
    for limit, there in ((None, GIB), (1.0, GIB), (0.5, GIB), (9.0, 0)):  # 0: nobody knows what is there
        refuse_too_much_memory("tune", limit, there)
    words = r"^frontier\.memory_gib=2 is more than the 1\.5 GiB of the device; leave it out$"
    with pytest.raises(ConfigError, match=words):
        refuse_too_much_memory("frontier", 2.0, 3 * GIB // 2)


@pytest.mark.parametrize(
    ("limit", "there", "bytes_"),
    [(2.0, GIB, 2 * GIB), (None, 1000, 900), (None, 0, None), (0.5, 0, GIB // 2)],
)
def test_an_arm_may_need_the_limit_else_nine_tenths_of_the_device(
    limit: float | None, there: int, bytes_: int | None
) -> None:
    assert budget(command(limit), there) == bytes_


@pytest.mark.parametrize(
    ("limited", "words"),
    [
        (command(), ["results no looser than tolerance", "for a long run"]),
        (
            command(1.5, parity="exact", compile_s=60.0, iterations=1000.0),
            [
                "results no looser than exact",
                "peak memory 1.5 GiB",
                "60 s of compiling",
                "for 1000 iterations, set-up and compiling included",
            ],
        ),
    ],
)
def test_every_limit_is_said(limited: TuneCommand, words: list[str]) -> None:
    assert limit_words(limited) == words
