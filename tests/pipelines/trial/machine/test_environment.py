"""Facts about the node, what they must not hold, and what counts as a disturbance."""

from __future__ import annotations

import json
import os
import resource
from dataclasses import replace
from pathlib import Path

import pytest

from perfsweep.pipelines.trial.machine import environment
from perfsweep.pipelines.trial.machine.environment import (
    SHORTEST_LOOK_S,
    HostUsage,
    device_facts,
    disturbance,
    facts,
    foreign_cores,
)
from perfsweep.pipelines.trial.machine.gpus import Gpu
from perfsweep.pipelines.trial.machine.usage import Usage

GIB = 2**30


def test_facts_hold_no_secrets_but_the_job_and_settings_that_change_timings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("WANDB_API_KEY", "HF_TOKEN", "SLURM_JWT", "AWS_SECRET_ACCESS_KEY", "SLURM_SPANK_PASSWORD"):
        monkeypatch.setenv(name, "correct-horse-battery")
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    monkeypatch.setenv("OMP_PROC_BIND", "close")
    found = facts()
    assert "correct-horse" not in json.dumps(found)
    assert (found["slurm"]["job_id"], found["settings"]["OMP_PROC_BIND"]) == ("4711", "close")


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment.gpus, "visible", lambda: ())


def test_affinity_counts_not_the_cores_of_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 5})
    assert (facts()["affinity"], device_facts().cores) == ("0-2,5", 4)


def fake_files(monkeypatch: pytest.MonkeyPatch, files: dict[str, str]) -> None:
    monkeypatch.setattr(environment, "_read", lambda file: files.get(str(file), ""))


def test_the_tightest_limit_of_the_control_groups_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "/proc/self/cgroup": "0::/slurm/job_1/step_0\n",
        "/sys/fs/cgroup/slurm/job_1/step_0/memory.max": "max\n",
        "/sys/fs/cgroup/slurm/job_1/memory.max": "4096\n",
        "/sys/fs/cgroup/slurm/memory.max": "8192\n",
        "/sys/fs/cgroup/slurm/job_1/cpu.max": "150000 100000\n",
        "/sys/fs/cgroup/slurm/cpu.max": "max 100000\n",
        "/proc/stat": "cpu 100 200 300 400 500 600 700 800 900 1000\ncpu0 1 2 3\n",
        "/proc/meminfo": "MemTotal: 16 kB\nMemAvailable: 8 kB\n",
        "/proc/cpuinfo": "model name : X\nvendor_id : V\nflags : sse avx2 avx512f\ncpu MHz : 2500.5\n" * 2,
        "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
        "/sys/kernel/mm/transparent_hugepage/enabled": "[always] never\n",
    }
    fake_files(monkeypatch, files)
    told: dict = {"cpu_model": "X", "cpu_features": ["avx2", "avx512f"], "cpu_governor": "performance"}
    told |= {"cpu_mhz": 2500.5, "cpu_limit": 1.5, "memory_bytes": 16384, "memory_available_bytes": 8192}
    told |= {"memory_limit_bytes": 4096, "huge_pages": "[always] never", "steal_share": 800 / 3600}
    assert facts().items() >= told.items() and device_facts().memory_bytes == 4096
    assert device_facts().vendor == "V"
    usage, tick_s = environment.host_usage(), 1 / os.sysconf("SC_CLK_TCK")
    assert (usage.cpu_s, usage.steal_s, usage.busy_s) == pytest.approx(
        (3600 * tick_s, 800 * tick_s, 1900 * tick_s)
    )


def test_limits_of_older_control_groups_are_found_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Version 1, as sites with an older system have it; in a container, whose root is the group itself."""
    files = {
        "/proc/self/cgroup": "4:memory:/slurm/job_1\n1:cpu,cpuacct:/slurm/job_1\n0::/\n",
        "/sys/fs/cgroup/memory/slurm/job_1/memory.limit_in_bytes": "9223372036854771712\n",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes": "4096\n",
        "/sys/fs/cgroup/cpu/slurm/job_1/cpu.cfs_quota_us": "-1\n",
        "/sys/fs/cgroup/cpu/slurm/job_1/cpu.cfs_period_us": "100000\n",
        "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "150000\n",
        "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        "/sys/fs/cgroup/cpu/slurm/job_1/cpu.stat": "nr_periods 9\nthrottled_time 2500000000\n",
    }
    fake_files(monkeypatch, files)
    found = facts()
    assert (found["memory_limit_bytes"], found["cpu_limit"]) == (4096, 1.5)
    assert environment.host_usage().throttled_s == pytest.approx(2.5)
    del files["/sys/fs/cgroup/memory/memory.limit_in_bytes"]
    assert facts()["memory_limit_bytes"] is None


def test_a_node_that_tells_nothing_has_facts_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_files(monkeypatch, {})
    assert facts()["memory_bytes"] is None
    assert device_facts().name  # the architecture, at least


TEN_S = 10_000_000_000

QUIET = HostUsage(cpu_s=1000.0, steal_s=1.0, load=1.0, node_cores=4, gpus=())


LATER = replace(QUIET, cpu_s=1040.0)


GPU = Gpu("NVIDIA H100", "GPU-1", 80 * GIB, (9, 0), thermal_ns=0)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (replace(QUIET, load=4.5), LATER, "load 4.5 on 4 cores"),
        (QUIET, replace(LATER, load=9.0), "load 9.0 on 4 cores"),
        (QUIET, replace(LATER, steal_s=3.0), "5.0% of CPU time went to other virtual machines"),
        (
            replace(QUIET, gpus=(replace(GPU, throttle=("idle", "power brake")),)),
            replace(LATER, gpus=(GPU,)),
            "GPU-1: power brake",
        ),
        (
            replace(QUIET, gpus=(GPU,)),
            replace(LATER, gpus=(replace(GPU, thermal_ns=10**9),)),
            "lowered by heat for 1.00 s",
        ),
        (
            replace(QUIET, gpus=(GPU,)),
            replace(LATER, gpus=(replace(GPU, foreign=2),)),
            "GPU-1: 2 other processes",
        ),
    ],
)
def test_each_disturbance_is_named(before: HostUsage, after: HostUsage, words: str) -> None:
    (reason,) = disturbance(before, after, TEN_S, Usage(run_delay_ns=0), threads=1)
    assert words in reason


@pytest.mark.parametrize(
    "after",
    [
        replace(LATER, load=4.0),
        replace(LATER, steal_s=1.7),  # 1.75 % of 40 s
        replace(LATER, cpu_s=1000.1, steal_s=1.01),  # one tick of a short trial
        replace(
            LATER,
            gpus=(
                replace(
                    GPU, throttle=("idle", "application clocks", "power cap"), thermal_ns=10**7, processes=3
                ),
            ),
        ),
    ],
)
def test_what_a_trial_does_to_itself_is_no_disturbance(after: HostUsage) -> None:
    before = replace(QUIET, gpus=(GPU,))
    assert disturbance(before, after, TEN_S, Usage(run_delay_ns=TEN_S // 60), threads=1) == ()
    (reason,) = disturbance(before, after, TEN_S, Usage(run_delay_ns=TEN_S // 40), threads=1)
    assert reason == "others had its core for 2.5% of the time"


@pytest.mark.parametrize(
    ("after", "reasons"), [(replace(LATER, load=9.0), 0), (replace(LATER, load=9.0, steal_s=3.0), 1)]
)
def test_what_is_subtracted_disturbs_nothing_and_stolen_time_does(after: HostUsage, reasons: int) -> None:
    crowded = Usage(run_delay_ns=TEN_S // 2)
    assert len(disturbance(QUIET, after, TEN_S, crowded, threads=1, subtracted=True)) == reasons
    assert len(disturbance(QUIET, after, TEN_S, crowded, threads=1)) == reasons + 2


def test_a_quota_that_stopped_an_arm_of_several_threads_disturbed_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the time of one thread it is subtracted, as what others had of its core."""
    files = {"/proc/self/cgroup": "0::/job\n"}
    fake_files(monkeypatch, files)
    looks = []
    for used_us in (2_000_000, 2_500_000):
        files["/sys/fs/cgroup/job/cpu.stat"] = f"usage_usec 9\nnr_throttled 7\nthrottled_usec {used_us}\n"
        looks.append(environment.host_usage().throttled_s)
    before, after = replace(QUIET, throttled_s=looks[0]), replace(LATER, throttled_s=looks[1], at_s=10.0)
    assert disturbance(before, after, TEN_S, None, threads=None) == (
        "a quota of CPU time stopped it for 0.50 s",
    )
    assert disturbance(before, after, TEN_S, None, threads=1, subtracted=True) == ()
    assert disturbance(before, replace(after, throttled_s=looks[0]), TEN_S, None, threads=None) == ()


@pytest.mark.parametrize(
    ("path_holds", "variable", "compiles"),
    [
        (("g++", "Python.h"), None, True),
        (("g++",), None, False),  # what torch generates includes Python.h
        (("g++", "Python.h"), "missing-cxx", False),  # torch asks $CXX alone where it is set
        (("clang++", "c++", "Python.h"), None, False),  # torch never looks for these by itself on Linux
    ],
)
def test_the_compiler_is_the_one_torch_would_call(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    path_holds: tuple[str, ...],
    variable: str | None,
    compiles: bool,
) -> None:
    for name in path_holds:
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(environment.sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setenv("CXX", variable) if variable else monkeypatch.delenv("CXX", raising=False)
    assert device_facts().compiler is compiles


WATCHED = replace(QUIET, busy_s=500.0, own_s=0.0, at_s=0.0)


@pytest.mark.parametrize(
    ("busy_s", "own_s", "threads", "reason"),
    [
        (10.0, 10.0, 1, None),  # ten seconds of its own
        (38.0, 10.0, 1, None),  # others used 2.8 of 4 cores, and one was left for it
        (44.0, 10.0, 1, "other processes used 3.4 of 4 cores"),
        (44.0, 20.0, 2, "other processes used 2.4 of 4 cores"),
    ],
)
def test_neighbours_disturb_once_they_leave_too_few_cores(
    busy_s: float, own_s: float, threads: int, reason: str | None
) -> None:
    after = replace(LATER, busy_s=500.0 + busy_s, own_s=own_s, at_s=10.0, load=9.0)
    found = disturbance(WATCHED, after, TEN_S, Usage(run_delay_ns=0), threads=threads)
    assert found == ((reason,) if reason else ()), (
        "the load average tells of the minute before the trial as well"
    )


@pytest.mark.parametrize(
    ("change", "cores"),
    [
        ({"at_s": SHORTEST_LOOK_S}, 24.0 / SHORTEST_LOOK_S),
        ({"at_s": SHORTEST_LOOK_S - 0.01}, None),
        ({"at_s": 10.0, "own_s": 50.0}, 0.0),
        ({"at_s": 10.0, "busy_s": None}, None),
    ],
)
def test_what_others_used_is_told_of_a_look_that_is_long_enough(change: dict, cores: float | None) -> None:
    after = replace(LATER, **{"busy_s": 534.0, "own_s": 10.0, **change})
    assert foreign_cores(WATCHED, after) == cores


def test_what_a_trial_used_itself_is_its_processor_time_and_that_of_those_who_work_for_it() -> None:
    before = sum(os.times()[:4])
    own_s = environment.host_usage(resource.struct_rusage((1.5, 0.25, *[0] * 14))).own_s
    assert before + 1.75 <= own_s <= sum(os.times()[:4]) + 1.75


@pytest.mark.parametrize(
    ("cpuinfo", "name"),
    [
        ("cpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n", "AMD EPYC, family 26 model 2"),
        ("Processor\t: AArch64 rev 1\nCPU architecture: 8\n", "AArch64 rev 1"),
    ],
)
def test_generations_of_a_processor_that_share_a_name_are_told_apart(monkeypatch, cpuinfo, name) -> None:
    monkeypatch.setattr(environment, "_read", lambda path: cpuinfo)
    assert environment._cpu_model() == name
