"""The batch script of an array, and what follows from sbatch's answers."""

from __future__ import annotations

import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from folder_names import NAMES
from stand_ins import executor_on, job, program

from perfsweep.slurm.batch import (
    ArrayExecutor,
    Submitted,
    command,
    is_limit,
    no_such_nodes,
    output_pattern,
    parameters,
    refusal,
)
from perfsweep.slurm.client import SlurmClient
from perfsweep.slurm.element import REQUEUE_ME
from perfsweep.slurm.errors import ClusterError
from perfsweep.slurm.executor import SlurmExecutor
from perfsweep.slurm.jobs import Job
from perfsweep.slurm.site import Shape, SiteProfile


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ("invalid partition specified: x", "partition"),
        ("Invalid node name specified", "nodelist or exclude"),
        ("Invalid generic resource (gres) specification", "gpus, gpu_type or gpu_flag"),
        ("Requested node configuration is not available", "gpus, cpus_per_task, memory or constraint"),
        ("Invalid license specification", "sbatch (--licenses)"),
        ("Job dependency problem", "sbatch (--dependency)"),
        ("Invalid job array specification", "max_array"),
        ("Socket timed out", None),
    ],
)
def test_what_sbatch_objects_to_is_a_field_of_the_profile(message: str, field: str | None) -> None:
    assert refusal(f"Batch job submission failed: {message}") == field


@pytest.mark.parametrize(
    ("message", "limit", "too_few"),
    [
        ("QOSMaxSubmitJobPerUserLimit", True, False),
        ("QOSGrpSubmitJobsLimit", True, False),
        ("Slurm temporarily unable to accept job, sleeping and retrying", True, False),
        ("Job violates accounting/QOS policy (job submit limit, ...)", True, False),
        ("Requested node configuration is not available", False, True),
        ("Node count specification invalid", False, True),
    ],
)
def test_limits_that_pass_and_nodes_that_lack_are_told_from_refusals(
    message: str, limit: bool, too_few: bool
) -> None:
    assert (is_limit(message), no_such_nodes(message)) == (limit, too_few)


def told(site: SiteProfile, **shape: Any) -> dict[str, Any]:
    own = Shape(**{"gpus": 1, "cpus": 3, **shape})
    return parameters(site, own, "demo.abc", "perfsweep:abc", {"PATH": "/bin", "X": "1"}, Path("/s/env.sh"))


def test_of_a_folders_name_slurm_fills_in_nothing() -> None:
    """What is written into the script, as a shell and sbatch read it; Slurm then makes one % of two."""
    for name in NAMES:
        folder = Path("/runs", name, "submissions")
        site, paths = SiteProfile(), (Path("/code/e.py"), folder / "abc.json")
        if "\\" in name or "\n" in name:
            with pytest.raises(ClusterError, match=r"^runs='.*': Slurm writes nothing into a folder with a"):
                command(site, Shape(1, 1), "python", *paths)
            continue
        (output,) = (
            word
            for word in shlex.split(command(site, Shape(1, 1), "python", *paths))
            if word.startswith("--output=")
        )
        pattern = str(output_pattern(folder))
        assert output == f"--output={pattern}"
        assert re.findall("%+.", pattern.replace("%%", "")) == ["%A", "%a"]
        assert pattern.replace("%%", "%") == f"{folder}/%A_%a_0_log.out"


ASKED = f'[ $perfsweep_status -eq {REQUEUE_ME} ] && scontrol requeue "$SLURM_JOB_ID"'
EMPTIED = 'rm -rf -- "$PERFSWEEP_SCRATCH"'


@pytest.mark.parametrize(
    ("fields", "lines"),
    [
        ({"teardown": ["echo bye"]}, ["echo bye"]),
        ({"scratch": "/tmp", "teardown": ["echo bye"]}, ["echo bye", EMPTIED]),
        ({"scratch": "/tmp", "srun": False}, None),
        ({"python": "apptainer exec x python"}, [f"{ASKED}  # a container may not have scontrol"]),
        ({"python": "apptainer exec x python", "requeue": False}, None),
    ],
)
def test_what_follows_the_pack_keeps_its_status(fields: dict[str, Any], lines: list[str] | None) -> None:
    plain = lines is None or lines == fields.get("teardown")
    kept = lines if plain else ["perfsweep_status=$?", *(lines or ()), "exit $perfsweep_status"]
    assert told(SiteProfile(**fields))["teardown"] == kept


SRUN = "srun --unbuffered --output=/s/%A_%a_0_log.out --export=ALL"


@pytest.mark.parametrize(
    ("fields", "gpus", "line"),
    [
        ({}, 1, f"{SRUN} '/opt/a b/python' -P /code/e.py /s/abc.json"),
        ({}, 0, f"{SRUN} env CUDA_VISIBLE_DEVICES= '/opt/a b/python' -P /code/e.py /s/abc.json"),
        ({"srun": False}, 1, "exec '/opt/a b/python' -P /code/e.py /s/abc.json"),
        ({"python": "x python"}, 1, f"{SRUN} x python -P /code/e.py /s/abc.json"),
    ],
)
def test_the_last_line_starts_python_and_without_srun_becomes_it(
    fields: dict[str, Any], gpus: int, line: str
) -> None:
    said = command(
        SiteProfile(**fields), Shape(gpus, 1), "/opt/a b/python", Path("/code/e.py"), Path("/s/abc.json")
    )
    assert said == line


def test_the_lines_of_a_profile_are_checked_by_number_and_scratch_by_name(tmp_path: Path) -> None:
    site = SiteProfile(setup=["true", "export A=1"], scratch=str(tmp_path), env_set={"B": "2"})
    lines = told(site)["setup"]
    assert ". /s/env.sh  # cluster.env_set" in lines
    checked = [line for line in lines if line.startswith("perfsweep_check '")]
    assert checked[:2] == ["perfsweep_check 'line 1' true", "perfsweep_check 'line 2' 'export A=1'"]
    assert len(checked) == 3 and checked[2].startswith("perfsweep_check 'for cluster.scratch' ")
    script = "\n".join(line for line in lines if "/s/env.sh" not in line)
    env = {"SLURM_JOB_ID": "65", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        ["bash", "-c", f'{script}\necho "$TMPDIR"'], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == f"{tmp_path}/perfsweep-65"
    assert (tmp_path / "perfsweep-65").is_dir()


def submit(folder: Path) -> Submitted:
    site = SiteProfile(gpus=0)
    arrays = ArrayExecutor(folder / "sweep/submissions", SlurmClient(), site)
    return arrays.submit_text_array("true", 1, told(site))


def test_the_last_number_that_sbatch_gives_counts(stand_in: Path, tmp_path: Path) -> None:
    program(stand_in, "sbatch", "echo Submitted batch job 5; echo Submitted batch job 62 on cluster dev")
    assert submit(tmp_path) == Submitted("62", "dev")
    program(stand_in, "sbatch", "echo 'Submitted batch job 63'; echo 'quota: 9 of 10' >&2; exit 1")
    assert submit(tmp_path) == Submitted("63", None, ("quota: 9 of 10",)), "a wrapper failed after it"


def test_sbatch_is_started_with_what_jobs_inherit_and_nothing_else(
    stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SECRET", "WANDB_RUN_ID", "LISTED", "SLURM_JOB_NAME", "https_proxy", "SSL_CERT_FILE"):
        monkeypatch.setenv(name, "1")
    program(stand_in, "sbatch", f"env > {tmp_path}/env; echo Submitted batch job 62")
    site = SiteProfile(gpus=0, env_allow=["LISTED", "WANDB_RUN_ID"])
    ArrayExecutor(tmp_path / "submissions", SlurmClient(), site).submit_text_array("true", 1, told(site))
    names = {line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
    assert {"LISTED", "PATH", "https_proxy", "SSL_CERT_FILE"} <= names
    assert not {"SECRET", "WANDB_RUN_ID", "SLURM_JOB_NAME"} & names


def text(site: SiteProfile, folder: Path, *jobs: Job) -> str:
    return "\n".join(executor_on(site, folder).texts(jobs or [job()]))


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"account": "lab", "qos": "high"}, "#SBATCH --qos=high"),
        ({"gpus": 2, "gpu_flag": "gpus-per-node", "gpu_type": "h100"}, "#SBATCH --gpus-per-node=h100:2"),
        ({"memory": "32G"}, "#SBATCH --mem=32G"),
        ({"time_min": 90}, "#SBATCH --time=90"),
        ({"exclude": "n[1-3]"}, "#SBATCH --exclude='n[1-3]'"),
        ({"exclusive": True}, "#SBATCH --exclusive"),
        ({"requeue": False}, "#SBATCH --no-requeue"),
        ({"signal_delay_s": 45}, "#SBATCH --signal=USR2@45"),
        ({"setup": ["module load cuda/12"]}, "module load cuda/12"),
        ({"teardown": ["rm -rf $TMPDIR"]}, "rm -rf $TMPDIR"),
        ({"sbatch": ["--propagate=STACK"]}, "#SBATCH --propagate=STACK"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_every_field_of_a_profile_reaches_the_script(
    fields: dict[str, object], line: str, tmp_path: Path
) -> None:
    script = text(SiteProfile(**fields), tmp_path)  # type: ignore[arg-type]
    default = text(SiteProfile(), tmp_path)
    assert line in script
    assert line not in default


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
    assert "#SBATCH --propagate=NONE" in script, "limits of the shell that submits are none of a job's"
    assert "NONE" not in text(SiteProfile(sbatch=["--propagate=STACK"]), tmp_path)


def test_a_job_may_ask_for_other_resources_than_the_profile_says(tmp_path: Path) -> None:
    own = {"memory": "100G", "gpu_type": "h100", "time_min": 240, "cpus_per_task": 9, "gpus": 2}
    script = text(SiteProfile(memory="8G", gpu_type="a100"), tmp_path, replace(job(), resources=own))
    for line in ("--mem=100G", "--gres=gpu:h100:2", "--time=240", "--cpus-per-task=9"):
        assert f"#SBATCH {line}" in script
    assert "SRUN_CPUS_PER_TASK=9 " in script


def test_a_pack_on_several_nodes_starts_on_the_first_with_what_each_node_needs(tmp_path: Path) -> None:
    script = text(SiteProfile(nodes=2, gpus=1, cpus_per_task=3), tmp_path, job(ranks=4))
    for line in ("--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=6", "--gres=gpu:2"):
        assert f"#SBATCH {line}" in script
    assert "--nodes=1 --ntasks=1 --relative=0" in script
    alone = text(SiteProfile(), tmp_path, job(ranks=4))
    assert "#SBATCH --nodes=1" in alone and "--relative" not in alone
