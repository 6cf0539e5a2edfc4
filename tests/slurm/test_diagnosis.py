"""`perfsweep doctor`: what a cluster offers, and what it would say to a profile."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from stand_ins import program

from perfsweep.slurm.client import Unreachable
from perfsweep.slurm.diagnosis import Diagnosis, Partition, diagnose, minutes, several_gpu_types
from perfsweep.slurm.site import SiteProfile

CPUS = SiteProfile(gpus=0)
GPU_ROW = "gpu*|up|2:00:00|2|idle|32|64000|gpu:a100:4|fast"
CPU_ROW = "cpu|up|infinite|9|mixed|8|16000|(null)|(null)"
DOWN_ROW = "gpu*|inactive|infinite|2|idle|32|64000|gpu:a100:4|fast"


@pytest.mark.parametrize(
    ("limit", "expected"),
    [("UNLIMITED", None), ("30:00", 30.0), ("2:00:00", 120.0), ("2-01:30:30", 2 * 1440 + 90.5)],
)
def test_a_time_limit_is_read_as_slurm_prints_it(limit: str, expected: float | None) -> None:
    assert minutes(limit) == expected


def found(
    folder: Path, site: SiteProfile, *rows: str, config: str = "", sbatch: str | None = None, sacct: str = ""
) -> Diagnosis:
    """What a Slurm that prints these texts is said to be."""
    program(folder, "sinfo", f"echo {shlex.quote(chr(10).join(rows or (GPU_ROW, CPU_ROW)))}")
    program(folder, "scontrol", f"echo {shlex.quote(config)}")
    program(folder, "sbatch", f"echo {shlex.quote(sbatch)} >&2; exit 1" if sbatch is not None else "exit 0")
    program(folder, "sacct", sacct or "exit 0")
    return diagnose(site, None)


def test_what_a_cluster_offers_is_listed(stand_in: Path) -> None:
    config = "SLURM_VERSION = 23.11.4\nMaxArraySize = 1001\nKillWait = 30 sec\nOther = 1"
    diagnosis = found(stand_in, CPUS, GPU_ROW, "half|a row", CPU_ROW, config=config)
    assert diagnosis.version == "23.11.4"
    assert diagnosis.limits == {"MaxArraySize": "1001", "KillWait": "30 sec"}
    assert diagnosis.partitions == (
        Partition("gpu", True, True, "2:00:00", "2", "idle", "32", "64000", "gpu:a100:4", "fast"),
        Partition("cpu", False, True, "infinite", "9", "mixed", "8", "16000", "(null)", "(null)"),
    )
    assert (diagnosis.accounting, diagnosis.refused, diagnosis.warnings) == (True, None, ())
    assert diagnosis.accepted == "a pack as this profile describes it would be accepted"
    assert (stand_in / "sbatch.calls").read_text().startswith("--test-only ")
    assert not found(stand_in, CPUS, sacct="exit 1").accounting


@pytest.mark.parametrize(
    ("answer", "refused"),
    [
        (
            "sbatch: error: invalid partition specified: x\nallocation failure: Invalid partition name",
            "cluster.partition: Invalid partition name\nthe site says:\n  invalid partition specified: x",
        ),
        (
            "sbatch: error: All jobs must name a project\n"
            "sbatch: error: Batch job submission failed: Unspecified error",
            "Batch job submission failed: Unspecified error\nthe site says:\n  All jobs must name a project",
        ),
        ("", "sbatch ended with status 1"),
    ],
)
def test_what_sbatch_objects_to_is_said_with_its_last_words_and_the_field(
    stand_in: Path, answer: str, refused: str
) -> None:
    diagnosis = found(stand_in, CPUS, sbatch=answer)
    assert (diagnosis.accepted, diagnosis.refused) == ("", refused)


def test_a_controller_that_is_not_reached_has_accepted_or_refused_nothing(stand_in: Path) -> None:
    with pytest.raises(Unreachable, match="Socket timed out"):
        found(stand_in, CPUS, sbatch="Socket timed out on send/recv operation")


@pytest.mark.parametrize(
    ("fields", "rows", "config", "warning"),
    [
        ({"time_min": 120}, (), "", ""),
        ({"time_min": 121}, (), "", "time_min=121 is above the partition's limit of 120 min: jobs may wait"),
        ({}, (DOWN_ROW,), "", "partition gpu is down: jobs wait until it comes up"),
        ({"partition": "cpu", "gpus": 2}, (), "", "cluster.gpus=2, and no node of partition cpu has a GPU"),
        (
            {},
            (),
            "JobRequeue = 0",
            "JobRequeue=0 on this cluster: packs continue only while a command follows",
        ),
        ({"requeue": False}, (), "JobRequeue = 0", ""),
    ],
)
def test_what_would_make_a_sweep_wait_or_end_unheard_is_warned_of(
    stand_in: Path, fields: dict[str, object], rows: tuple[str, ...], config: str, warning: str
) -> None:
    diagnosis = found(stand_in, SiteProfile(**fields), *rows, config=config)  # type: ignore[arg-type]
    assert len(diagnosis.warnings) == bool(warning) and warning in "".join(diagnosis.warnings)


def test_a_set_up_line_that_fails_here_is_warned_of_with_what_jobs_would_inherit(
    stand_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HELD_BACK", "/")
    checked = ["source ${HELD_BACK}${GIVEN}/nowhere"]
    site = SiteProfile(gpus=0, setup=checked, env_set={"GIVEN": "/given"})
    (warning,) = found(stand_in, site).warnings
    assert "cluster.setup line 1 ended with status 1" in warning and "/given/nowhere" in warning
    assert "//given" not in warning, "a variable that jobs do not inherit"


def nodes_with(*gres: str) -> tuple[Partition, ...]:
    shape = {"default": True, "up": True, "limit": "infinite", "nodes": "1", "state": "idle", "cores": "8"}
    return tuple(Partition("gpu", **shape, memory_mb="1", gres=one, features="") for one in gres)  # type: ignore[arg-type]


def test_gpus_of_several_types_are_to_be_chosen_from_unless_something_else_chooses() -> None:
    both = nodes_with("gpu:h100:8(S:0-1)", "gpu:a100:4,gpu:h100:1", "(null)", "gpu:l40s:2")
    said = several_gpu_types(SiteProfile(gpus=1), both)
    assert said is not None and "(a100, h100, l40s) and cluster.gpu_type is open" in said
    assert said.endswith("such as cluster.gpu_type=a100")
    for chosen in ({"gpu_type": "h100"}, {"constraint": "big"}, {"nodelist": "n1"}, {"gpus": 0}):
        assert several_gpu_types(SiteProfile(**{"gpus": 1, **chosen}), both) is None  # type: ignore[arg-type]
    assert several_gpu_types(SiteProfile(gpus=1), nodes_with("gpu:h100:8", "gpu:h100:4", "gpu:2")) is None
    assert several_gpu_types(SiteProfile(gpus=1, partition="cpu"), both) is None
