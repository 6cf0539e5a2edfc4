"""Profiles become batch scripts: every field arrives, and what could not be meant is refused by its name."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stand_ins import executor_on, job, program

from perfsweep.slurm.errors import ClusterError
from perfsweep.slurm.executor import SlurmExecutor
from perfsweep.slurm.jobs import Job
from perfsweep.slurm.site import Shape, SiteProfile, option_name


def text(site: SiteProfile, folder: Path, *jobs: Job) -> str:
    return "\n".join(executor_on(site, folder).texts(jobs or [job()]))


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"partition": "a100"}, "#SBATCH --partition=a100"),
        ({"account": "lab", "qos": "high"}, "#SBATCH --qos=high"),
        ({"gpus": 2}, "#SBATCH --gres=gpu:2"),
        ({"gpus": 2, "gpu_flag": "gpus-per-node", "gpu_type": "h100"}, "#SBATCH --gpus-per-node=h100:2"),
        ({"gpu_flag": "gpus", "gpus": 1}, "#SBATCH --gpus=1"),
        ({"memory": "32G"}, "#SBATCH --mem=32G"),
        ({"memory": "4G", "mem_flag": "mem-per-cpu"}, "#SBATCH --mem-per-cpu=4G"),
        ({"time_min": 90}, "#SBATCH --time=90"),
        ({"exclude": "n[1-3]"}, "#SBATCH --exclude='n[1-3]'"),
        ({"reservation": "maint"}, "#SBATCH --reservation=maint"),
        ({"exclusive": True}, "#SBATCH --exclusive"),
        ({"requeue": False}, "#SBATCH --no-requeue"),
        ({"signal_delay_s": 45}, "#SBATCH --signal=USR2@45"),
        ({"srun": False}, "#SBATCH --signal=B:USR2@60"),
        ({"sbatch": ["--licenses=a:1,b"]}, "#SBATCH --licenses=a:1,b"),
        ({"sbatch": ["--contiguous"]}, "#SBATCH --contiguous"),
        ({"setup": ["module load cuda/12"]}, "module load cuda/12"),
        ({"teardown": ["rm -rf $TMPDIR"]}, "rm -rf $TMPDIR"),
        ({"env_set": {"A": "it's"}}, "/submissions/env_set.sh  # cluster.env_set"),
        ({"gpus": 0}, " env CUDA_VISIBLE_DEVICES= "),
        ({"wckey": "w1"}, "#SBATCH --wckey=w1"),
        ({"gpus": 2, "cpus_per_task": 12, "cpu_flag": "cpus-per-gpu"}, "#SBATCH --cpus-per-gpu=6"),
        ({"gpus": 0, "cpus_per_task": 6, "cpu_flag": "cpus-per-gpu"}, "#SBATCH --cpus-per-task=6"),
        ({"sbatch": ["--propagate=STACK"]}, "#SBATCH --propagate=STACK"),
        ({"python": "apptainer exec --nv image.sif python"}, " apptainer exec --nv image.sif python -P "),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_every_field_of_a_profile_reaches_the_script(
    fields: dict[str, object], line: str, tmp_path: Path
) -> None:
    script = text(SiteProfile(**fields), tmp_path)  # type: ignore[arg-type]
    default = text(SiteProfile(), tmp_path)
    assert line in script
    assert line not in default or fields == {"gpus": 1, "gpu_flag": "gpus"}


def test_cores_are_asked_for_in_one_way(tmp_path: Path) -> None:
    script = text(SiteProfile(gpus=2, cpu_flag="cpus-per-gpu"), tmp_path)
    assert "#SBATCH --cpus-per-task" not in script and "SRUN_CPUS_PER_TASK=4" in script


def test_limits_of_the_shell_that_submits_are_none_of_a_jobs(tmp_path: Path) -> None:
    assert "#SBATCH --propagate=NONE" in text(SiteProfile(), tmp_path)
    assert "NONE" not in text(SiteProfile(sbatch=["--propagate=STACK"]), tmp_path)


def test_what_of_sbatchs_variables_is_used_and_what_is_not_is_said(
    stand_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(stand_in, "sinfo", "exit 1")
    for name, value in {"PARTITION": "long", "ACCOUNT": "lab", "QOS": "", "TIMELIMIT": "5"}.items():
        monkeypatch.setenv(f"SBATCH_{name}", value)
    assert SlurmExecutor.warnings(SiteProfile(partition="long", account="mine")) == [
        "as this shell says: SBATCH_PARTITION=long",
        "not used of this shell: SBATCH_ACCOUNT, SBATCH_TIMELIMIT; fields of cluster say what sbatch is asked"
        " for",
    ]


def test_fields_that_are_not_set_are_not_written(tmp_path: Path) -> None:
    script = text(SiteProfile(gpus=0), tmp_path)
    for name in ("partition", "qos", "account", "constraint", "wckey", "mem", "gres", "exclude"):
        assert f"--{name}" not in script


def test_packs_that_need_more_gpus_go_into_an_array_of_their_own(tmp_path: Path) -> None:
    script = text(SiteProfile(), tmp_path, job("p000"), job("p001", ranks=2), job("p002"))
    assert script.count("#!/bin/bash") == 2
    assert "--array=0-1%2" in script and "--gres=gpu:1" in script
    assert "--array=0-0%1" in script and "--gres=gpu:2" in script


def test_only_listed_variables_are_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hush")
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    said = next(
        line
        for line in text(SiteProfile(), tmp_path).splitlines()
        if line.startswith("# sbatch is started with")
    )
    assert " PATH " in said
    assert "SECRET_TOKEN" not in said and "SLURM_JOB_ID" not in said


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"sbatch": ["--time=5"]}, "collides"),
        ({"sbatch": ["-a 3"]}, "collides"),
        ({"sbatch": ["--gres=gpu:3"]}, "collides"),
        ({"sbatch": ["licenses"]}, "is no option of sbatch"),
        ({"gpu_flag": "gpu"}, "choose from: gres, gpus-per-node"),
        ({"mem_flag": "none", "memory": "1G"}, "drop one"),
        ({"time_min": 0}, "cluster.time_min=0 must be at least 1"),
        ({"poll_min_s": 0}, "above zero"),
        ({"poll_max_s": 20}, "cluster.poll_max_s=20 is below cluster.poll_min_s=30"),
        ({"srun": False, "teardown": ["true"]}, "cluster.teardown needs"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_a_profile_that_cannot_work_is_refused_by_field(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ClusterError, match=message):
        SiteProfile(**fields).check()  # type: ignore[arg-type]


@given(st.integers(0, 8), st.integers(1, 16))
def test_a_shape_never_has_fewer_gpus_than_ranks(gpus: int, ranks: int) -> None:
    shape = Shape.of(SiteProfile(gpus=gpus), ranks)
    assert shape.gpus == 0 if gpus == 0 else shape.gpus >= ranks


def test_options_are_named_by_their_long_names() -> None:
    assert [option_name(text) for text in ("--licenses=a", "-p x", "--contiguous")] == [
        "licenses",
        "partition",
        "contiguous",
    ]


SINFO = "gpu*|up|infinite|1|idle|32|64000|{}|fast"


@pytest.mark.parametrize(
    ("gres", "fields", "warned"),
    [
        (("gpu:a100:4(S:0-1)", "gpu:h100:8"), {}, "several types (a100, h100) and cluster.gpu_type is open"),
        (("gpu:1080ti:4,gpu:v100:1",), {}, "choose one, such as cluster.gpu_type=1080ti"),
        (("gpu:a100:4", "gpu:h100:8"), {"gpu_type": "h100"}, ""),
        (("gpu:a100:4", "gpu:h100:8"), {"constraint": "fast"}, ""),
        (("gpu:a100:4", "gpu:h100:8"), {"gpus": 0}, ""),
        (("gpu:a100:4", "gpu:a100:8", "gpu:2(S:0)"), {}, ""),
    ],
)
def test_who_leaves_the_type_of_gpu_open_is_warned_where_there_are_several(
    stand_in: Path, gres: tuple[str, ...], fields: dict[str, object], warned: str
) -> None:
    rows = "\n".join(SINFO.format(one) for one in gres)
    program(stand_in, "sinfo", f"echo '{rows}'")
    (said,) = SlurmExecutor.warnings(SiteProfile(**fields)) or [""]  # type: ignore[arg-type]
    assert warned in said and bool(said) == bool(warned)
    program(stand_in, "sinfo", "exit 1")
    assert SlurmExecutor.warnings(SiteProfile()) == []


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ("--licenses=a:1", "#SBATCH --licenses=a:1"),
        ("--licenses a:1", "#SBATCH --licenses=a:1"),
        ("-L a:1", "#SBATCH --licenses=a:1"),
        ("-La:1", "#SBATCH --licenses=a:1"),
        ("--mail-user='me@there.org'", "#SBATCH --mail-user=me@there.org"),
        ("--begin=now + 1hour", "#SBATCH --begin='now + 1hour'"),
        ("-H", "#SBATCH --hold"),
    ],
)
def test_an_option_of_sbatch_keeps_its_value_however_it_is_written(
    given: str, line: str, tmp_path: Path
) -> None:
    site = SiteProfile(sbatch=[given])
    site.check()
    assert line in text(site, tmp_path).splitlines()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--licenses=a --contiguous"], "more than one option; write each as --name=value"),
        (["-p x y"], "or more than one"),
        (["--licenses=a", "-L b"], "cluster.sbatch: --licenses is given twice"),
        (["-@ 3"], "'-@ 3' is unknown here; write it as --name=value"),
        (["-N 2"], "collides"),
        (["--comment='a"], "cannot be read"),
    ],
)
def test_what_sbatch_would_not_get_as_it_was_meant_is_refused(given: list[str], message: str) -> None:
    with pytest.raises(ClusterError, match=message):
        SiteProfile(sbatch=given).check()


def test_a_pack_on_several_nodes_starts_on_the_first_with_what_each_node_needs(tmp_path: Path) -> None:
    script = text(SiteProfile(nodes=2, gpus=1, cpus_per_task=3), tmp_path, job(ranks=4))
    for line in ("--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=6", "--gres=gpu:2"):
        assert f"#SBATCH {line}" in script
    assert "--nodes=1 --ntasks=1 --relative=0" in script
    alone = text(SiteProfile(), tmp_path, job(ranks=4))
    assert "#SBATCH --nodes=1" in alone and "--relative" not in alone


@pytest.mark.parametrize(
    ("nodes", "each", "ranks", "cpus"),
    [(1, None, 4, 4), (2, None, 4, 2), (2, None, 3, 2), (4, 2, 4, 2), (2, 4, 2, 2)],
)
def test_a_node_has_the_cores_of_its_ranks(nodes: int, each: int | None, ranks: int, cpus: int) -> None:
    shape = Shape.of(SiteProfile(nodes=nodes, ntasks_per_node=each, cpus_per_task=1), ranks)
    assert (shape.nodes, shape.cpus) == (nodes, cpus)


def test_an_option_for_all_gpus_of_a_job_counts_those_of_every_node() -> None:
    site = SiteProfile(nodes=2, gpus=4, gpu_flag="gpus")
    assert site.options(Shape.of(site, 8))["gpus"] == "8"
