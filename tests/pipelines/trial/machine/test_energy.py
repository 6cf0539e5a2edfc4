"""Energy of a region: which counters are read, what wraps, and when nothing is said and why."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from io import FileIO
from pathlib import Path
from typing import Any

import pytest
from fake_nvml import H100, FakeNvml
from powercap import RANGE_UJ, FakePowercap

from perfsweep.pipelines.trial.machine import energy
from perfsweep.pipelines.trial.machine.energy import (
    ENERGY_J,
    Counter,
    Counters,
    Meter,
    Spent,
    Unreadable,
    gpu_counters,
    least_s,
    record_fields,
    seconds_between_changes,
    shared_by,
)
from perfsweep.pipelines.trial.machine.environment import HostUsage
from perfsweep.pipelines.trial.machine.gpus import Gpu


class Seconds:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def powercap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePowercap:
    root = tmp_path / "powercap"
    root.mkdir()
    monkeypatch.setattr(energy, "POWERCAP", root)
    return FakePowercap(root, packages=2)


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., FakeNvml]]:
    """Installs fake GPUs; checks at the end that NVML was closed as often as it was opened."""
    installed: list[FakeNvml] = []
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def install(*devices: dict[str, Any]) -> FakeNvml:
        installed.append(FakeNvml(*devices))
        monkeypatch.setitem(sys.modules, "pynvml", installed[-1])
        return installed[-1]

    yield install
    assert all(fake.open == 0 for fake in installed)


def gpu(number: int, **facts: Any) -> dict[str, Any]:
    return H100 | {"uuid": f"GPU-{number}", "energy_mj": 10**9, **facts}


def metered(
    spend: Callable[[], None], devices: Sequence[int] = (), seconds: float = 10.0, **options: Any
) -> Spent:
    """What a meter says of one region of some seconds in which `spend` moves the counters."""
    now = Seconds()
    meter = Meter(devices, now=now, **options)
    try:
        meter.begin()
        spend()
        now.now += seconds
        meter.end()
        return meter.spent()
    finally:
        meter.close()


def test_packages_and_their_memory_add_up_and_what_is_part_of_them_does_not(powercap: FakePowercap) -> None:
    spent = metered(lambda: powercap.count_all(5.0))
    assert spent.source == "RAPL" and spent.reason == ""
    assert spent.joules == pytest.approx(
        dict.fromkeys(["package-0", "dram of package-0", "package-1", "dram of package-1"], 5.0)
    )
    assert record_fields([spent], job=False)["quantities"][ENERGY_J] == pytest.approx(20.0)


def test_a_counter_that_begins_anew_inside_the_region_is_read_over_its_range(powercap: FakePowercap) -> None:
    powercap.count(package_0=RANGE_UJ / 1e6 - 3.0)
    spent = metered(lambda: powercap.count(package_0=10.0))
    assert spent.joules["package-0"] == pytest.approx(10.0)


def test_where_it_may_have_begun_anew_twice_the_reason_says_how_long_one_may_be(
    powercap: FakePowercap,
) -> None:
    spent = metered(lambda: powercap.count(package_0=10.0), seconds=3600.0)
    assert spent.joules == {} and "more than once in 3600 s; a region under 82 s would do" in spent.reason


def test_several_regions_add_up_and_what_lies_between_them_does_not_count(powercap: FakePowercap) -> None:
    now = Seconds()
    meter = Meter((), now=now)
    for _ in range(3):
        meter.begin()
        powercap.count(package_1=2.0)
        now.now += 1.0
        meter.end()
        powercap.count(package_1=100.0)
    spent = meter.spent()
    assert (spent.joules["package-1"], spent.regions, spent.seconds) == (pytest.approx(6.0), 3, 3.0)


def test_counters_for_root_alone_say_how_to_open_them(
    powercap: FakePowercap, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(file: Path) -> FileIO:
        if file.name == "energy_uj":
            raise PermissionError(13, "Permission denied")
        return FileIO(file)

    monkeypatch.setattr(energy, "FileIO", refuse)  # root may read anything, whatever its mode
    reason = metered(lambda: None).reason
    assert "energy_uj may be read by root alone; an administrator can allow it with chmod a+r" in reason


def test_a_counter_that_holds_no_number_is_named(powercap: FakePowercap) -> None:
    (powercap.zones["package-1"] / "energy_uj").write_text("a lot\n")
    assert "intel-rapl:1/energy_uj holds" in metered(lambda: None).reason


def test_a_zone_without_one_of_its_files_is_named(powercap: FakePowercap) -> None:
    file = "max_energy_range_uj"
    (powercap.zones["package-1"] / file).unlink()
    assert f"intel-rapl:1/{file} cannot be read (No such file" in metered(lambda: None).reason


def test_counters_that_stand_still_say_nothing(powercap: FakePowercap) -> None:
    fields = record_fields([metered(lambda: None)], job=False)
    assert fields["withheld"][ENERGY_J] == "the counters did not move in the whole region"


def test_the_gpus_that_hold_tensors_are_counted_each_by_itself(nvml: Callable[..., FakeNvml]) -> None:
    fake = nvml(gpu(0), gpu(1), gpu(2))

    def spend() -> None:
        for number, device in enumerate(fake.devices):
            device["energy_mj"] += (number + 1) * 1000_000

    fields = record_fields([metered(spend, [0, 2])], job=False)
    each = {f"{ENERGY_J} GPU-0": 1000.0, f"{ENERGY_J} GPU-2": 3000.0}
    assert fields["quantities"] == {ENERGY_J: 4000.0, **each}
    assert fields["energy"] == {"source": "NVML", "counters": ["GPU-0", "GPU-2"]}


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        (gpu(0, whole=gpu(9)), "GPU-0 is a slice of a GPU, and NVML counts the energy of the whole"),
        (H100 | {"uuid": "GPU-0"}, "NVML keeps no total energy of GPU-0 (not supported); GPUs since Volta"),
    ],
    ids=["slice", "before Volta"],
)
def test_a_gpu_without_a_counter_of_its_own_says_why(
    nvml: Callable[..., FakeNvml], device: dict[str, Any], reason: str
) -> None:
    nvml(device)
    assert reason in metered(lambda: None, [0]).reason


def test_a_driver_that_was_loaded_anew_is_no_negative_energy(nvml: Callable[..., FakeNvml]) -> None:
    fake = nvml(gpu(0))
    spent = metered(lambda: fake.devices[0].update(energy_mj=5), [0])
    assert spent.joules == {} and "GPU-0 went back: its driver was loaded again" in spent.reason


def test_a_gpu_that_nvml_does_not_list_is_said_to_be(nvml: Callable[..., FakeNvml]) -> None:
    nvml(gpu(0))
    with pytest.raises(Unreadable, match="does not tell of the GPU"), gpu_counters([1]):
        pass


def test_short_turns_are_refused_with_the_length_and_the_options_that_would_do() -> None:
    short = Spent({"GPU-0": 9.0}, regions=1, seconds=0.8, step_s=0.1, source="NVML")
    reason = record_fields([short], job=False)["withheld"][ENERGY_J]
    assert reason == (
        "NVML's counters change every 100 ms, and a turn took 800 ms; one of 5 s would do:"
        " measure.turn_s=10 measure.region_s=10"
    )


@pytest.mark.parametrize("step_s", [0.1, 1.234, 0.00996])
@pytest.mark.parametrize("speed", [0.5, 1.01])
def test_the_length_that_it_names_does_suffice_though_a_last_turn_may_be_short(
    step_s: float, speed: float
) -> None:
    """Whatever an arm's speed is as a multiple of the one that the region's iterations come from."""
    short = Spent({"GPU-0": 9.0}, regions=1, seconds=0.008, step_s=step_s, source="NVML")
    reason = record_fields([short], job=False)["withheld"][ENERGY_J]
    options = dict(word.split("=") for word in reason.rpartition(": ")[2].split())
    turn_s, region_s = float(options["measure.turn_s"]), float(options["measure.region_s"])
    seconds = region_s * speed
    longer = replace(short, seconds=seconds, regions=math.ceil(seconds / turn_s))
    assert record_fields([longer], job=False)["quantities"] == {ENERGY_J: 9.0}
    assert turn_s < 2.3 * least_s(short)


def test_of_ranks_on_one_machine_only_the_first_reads_its_packages(powercap: FakePowercap) -> None:
    other = metered(lambda: powercap.count(package_0=7.0), counts=False)
    first = metered(lambda: powercap.count(package_0=7.0))
    assert record_fields([first, other], job=False)["quantities"][ENERGY_J] == pytest.approx(7.0)


def usage(at_s: float, busy_s: float, *gpus: Gpu) -> HostUsage:
    return HostUsage(cpu_s=0.0, steal_s=0.0, load=0.0, node_cores=4, gpus=gpus, busy_s=busy_s, at_s=at_s)


@pytest.mark.parametrize(
    ("busy_s", "beside", "said"),
    [(0.2, 0.0, ""), (8.0, 0.0, "other processes used 0.8 cores"), (8.0, 1.0, "")],
    ids=["quiet", "others", "own ranks"],
)
def test_a_package_that_others_use_too_says_so(busy_s: float, beside: float, said: str) -> None:
    reason = shared_by(usage(0.0, 0.0), usage(10.0, busy_s), ["package-0"], "RAPL", beside)
    assert reason.startswith(said) and bool(reason) == bool(said)


def test_a_gpu_with_other_processes_says_so_and_another_gpu_does_not_matter() -> None:
    alone, crowded = (Gpu("H100", f"GPU-{n}", 0, None, foreign=n) for n in range(2))
    ends = (usage(0.0, 0.0, alone, crowded), usage(9.0, 0.0, alone, crowded))
    assert shared_by(*ends, ["GPU-0"], "NVML", 0.0) == ""
    assert "GPU-1 had other processes" in shared_by(*ends, ["GPU-0", "GPU-1"], "NVML", 0.0)


def test_how_often_counters_change_is_that_of_the_slowest() -> None:
    now = Seconds()

    def every(step_s: float) -> Callable[[], float]:
        return lambda: (now.now // step_s) * step_s

    def tick() -> float:
        now.now += 1e-4
        return now.now

    both = Counters("NVML", (Counter("fast", every(0.001)), Counter("slow", every(0.02))), 0.1)
    assert seconds_between_changes(both, tick) == pytest.approx(0.02, rel=0.05)


def test_two_changes_are_enough_to_tell_how_often_a_counter_changes() -> None:
    now, read_j = itertools.count(), itertools.chain([1, 1, 2, 2, 2, 3], itertools.repeat(3))
    slow = Counters("NVML", (Counter("slow", lambda: float(next(read_j))),), 0.1)
    assert seconds_between_changes(slow, lambda: 0.001 * next(now)) == pytest.approx(0.003)


def test_counters_that_do_not_change_are_not_watched_for_ever() -> None:
    now = Seconds()

    def tick() -> float:
        now.now += 0.01
        return now.now

    assert seconds_between_changes(Counters("RAPL", (Counter("dead", lambda: 1.0),), 0.1), tick) is None


def test_short_jobs_are_refused_however_many_there_are_since_each_end_is_uncertain() -> None:
    short = Spent({"GPU-0": 9.0}, regions=100, seconds=80.0, step_s=0.1, source="NVML")
    assert least_s(short) == pytest.approx(5.0)
    reason = record_fields([short], job=True)["withheld"][ENERGY_J]
    assert reason.endswith(
        "a turn took 800 ms; one of 5 s would do: measure.turn_s=10, where a job lasts as long"
    )
