"""The batch script of an array, and what follows from sbatch's answers."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from folder_names import NAMES
from stand_ins import executor_on, job, program

from perfsweep.slurm.batch import (
    SETUP_FAILED,
    ArrayExecutor,
    SubmissionFailed,
    Submitted,
    command,
    environment,
    is_limit,
    no_such_nodes,
    output_pattern,
    parameters,
    refusal,
    rehearsal,
)
from perfsweep.slurm.client import SlurmClient
from perfsweep.slurm.element import REQUEUE_ME
from perfsweep.slurm.errors import ClusterError
from perfsweep.slurm.site import Shape, SiteProfile


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ("invalid partition specified: x", "partition"),
        ("Invalid account or account/partition combination specified", "account"),
        ("Invalid qos specification", "qos"),
        ("Invalid feature specification", "constraint"),
        ("Requested reservation is invalid", "reservation"),
        ("Invalid node name specified", "nodelist or exclude"),
        ("Invalid generic resource (gres) specification", "gpus, gpu_type or gpu_flag"),
        ("Requested node configuration is not available", "gpus, cpus_per_task, memory or constraint"),
        ("More processors requested than permitted", "cpus_per_task"),
        ("Requested time limit is invalid (missing or exceeds some limit)", "time_min"),
        ("Memory specification can not be satisfied", "memory"),
        ("Invalid wckey specification", "wckey"),
        ("Invalid license specification", "sbatch (--licenses)"),
        ("sbatch: unrecognized option '--cheese'", "sbatch"),
        ("sbatch: invalid option -- '@'", "sbatch"),
        ("Job dependency problem", "sbatch (--dependency)"),
        ("User's group not permitted to use this partition", "partition, account or qos"),
        ("Access/permission denied", "partition, account or qos"),
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
        ("AssocMaxSubmitJobLimit", True, False),
        ("QOSGrpSubmitJobsLimit", True, False),
        ("AssocGrpSubmitJobsLimit", True, False),
        ("Resource temporarily unavailable", True, False),
        ("Slurm temporarily unable to accept job, sleeping and retrying", True, False),
        ("Job violates accounting/QOS policy (job submit limit, ...)", True, False),
        ("Requested node configuration is not available", False, True),
        ("Invalid node count", False, True),
        ("Node count specification invalid", False, True),
        ("Invalid qos specification", False, False),
    ],
)
def test_limits_that_pass_and_nodes_that_lack_are_told_from_refusals(
    message: str, limit: bool, too_few: bool
) -> None:
    assert (is_limit(message), no_such_nodes(message)) == (limit, too_few)


def told(site: SiteProfile, **shape: Any) -> dict[str, Any]:
    own = Shape(**{"gpus": 1, "cpus": 3, **shape})
    return parameters(site, own, "demo.abc", "perfsweep:abc", {"PATH": "/bin", "X": "1"}, Path("/s/env.sh"))


def test_what_sbatch_is_told_besides_the_profile() -> None:
    found = told(SiteProfile(memory="4G", wckey="w", array_parallelism=5))
    assert {name: found[name] for name in ("nodes", "ntasks_per_node", "cpus_per_task", "job_name")} == {
        "nodes": 1,
        "ntasks_per_node": 1,
        "cpus_per_task": 3,
        "job_name": "demo.abc",
    }
    assert (found["comment"], found["wckey"], found["array_parallelism"]) == ("perfsweep:abc", "w", 5)
    assert (found["mem"], found["gres"], found["stderr_to_stdout"]) == ("4G", "gpu:1", True)
    assert found["additional_parameters"] == {
        "export": "ALL",
        "output": "/s/%A_%a_0_log.out",
        "propagate": "NONE",
        "signal": "USR2@60",
        "requeue": True,
        "kill-on-invalid-dep": "yes",
    }
    assert found["teardown"] is None
    assert found["setup"] == [
        "# sbatch is started with these variables alone: PATH",
        "unset SLURM_EXPORT_ENV  # srun would drop what the lines below set",
        "unset SLURM_CPUS_PER_GPU  # srun refuses that with the next line",
        "export SRUN_CPUS_PER_TASK=3  # srun does not take it from sbatch since Slurm 22.05",
    ]


def test_of_several_nodes_the_first_runs_the_pack_and_further_options_of_srun_come_last() -> None:
    site, paths = SiteProfile(srun_args=["--mpi=none"]), (Path("/code/e.py"), Path("/s/abc.json"))
    options = " --export=ALL --nodes=1 --ntasks=1 --relative=0 --mpi=none python "
    assert options in command(site, Shape(1, 1, nodes=2), "python", *paths)


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


def test_what_a_profile_forbids_or_adds_is_told() -> None:
    site = SiteProfile(requeue=False, kill_invalid_dep=False, srun=False, sbatch=["--contiguous", "-L a:1"])
    found = told(site)
    assert found["additional_parameters"] == {
        "export": "ALL",
        "output": "/s/%A_%a_0_log.out",
        "propagate": "NONE",
        "signal": "B:USR2@60",
        "no-requeue": True,
        "contiguous": True,
        "licenses": "a:1",
    }


ASKED = f'[ $perfsweep_status -eq {REQUEUE_ME} ] && scontrol requeue "$SLURM_JOB_ID"'
EMPTIED = 'rm -rf -- "$PERFSWEEP_SCRATCH"'


@pytest.mark.parametrize(
    ("fields", "lines"),
    [
        ({"teardown": ["echo bye"]}, ["echo bye"]),
        ({"scratch": "/tmp"}, [EMPTIED]),
        ({"scratch": "/tmp", "teardown": ["echo bye"]}, ["echo bye", EMPTIED]),
        ({"scratch": "/tmp", "srun": False}, None),
        ({"python": "apptainer exec x python"}, [f"{ASKED}  # a container may not have scontrol"]),
        ({"python": "apptainer exec x python", "requeue": False}, None),
        ({"python": "apptainer exec x python", "srun": False}, None),
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


def test_values_of_variables_survive_the_shell(tmp_path: Path) -> None:
    text = environment(SiteProfile(env_set={"A": "it's $HOME", "B": "2"}))
    done = subprocess.run(["sh", "-c", f"{text}echo $A; echo $B"], capture_output=True, text=True, check=True)
    assert done.stdout == "it's $HOME\n2\n"


@pytest.mark.parametrize(
    ("setup", "status", "said"),
    [
        (["true", "export A=1"], 0, ""),
        (["true", "test  -e  /nowhere", "touch after"], SETUP_FAILED, "line 2 ended with status 1: test -e"),
        (["sh -c 'exit 7'"], SETUP_FAILED, "line 1 ended with status 7: sh -c 'exit 7'"),
    ],
)
def test_a_set_up_line_that_fails_ends_the_job_and_is_named(
    tmp_path: Path, setup: list[str], status: int, said: str
) -> None:
    done = subprocess.run(
        ["bash", "-c", rehearsal(setup)], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == status
    assert said in done.stderr and bool(said) == bool(done.stderr)
    assert not list(tmp_path.iterdir())


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


@pytest.mark.parametrize(
    ("body", "message", "unknown"),
    [
        ("echo 'sbatch: error: Invalid qos' >&2; exit 1", "Invalid qos", False),
        ("exit 3", "sbatch ended with status 3", False),
        ("echo 'sbatch: error: busy' >&2; exit 124", "busy", True),
        ("echo Welcome; echo 'to job 5'", "sbatch's answer holds no job number: to job 5", True),
        ("true", "sbatch's answer holds no job number: it printed nothing", True),
    ],
    ids=["refused", "without a word", "out of time", "talkative", "silent"],
)
def test_an_sbatch_that_gives_no_number_says_whether_it_may_have_submitted_all_the_same(
    stand_in: Path, tmp_path: Path, body: str, message: str, unknown: bool
) -> None:
    program(stand_in, "sbatch", body)
    with pytest.raises(SubmissionFailed) as failed:
        submit(tmp_path)
    assert message in str(failed.value)
    assert failed.value.unknown is unknown


def test_the_last_number_that_sbatch_gives_counts(stand_in: Path, tmp_path: Path) -> None:
    program(stand_in, "sbatch", "echo Submitted batch job 5; echo Submitted batch job 62 on cluster dev")
    assert submit(tmp_path) == Submitted("62", "dev")
    program(stand_in, "sbatch", "echo 'Submitted batch job 63'; echo 'quota: 9 of 10' >&2; exit 1")
    assert submit(tmp_path) == Submitted("63", None, ("quota: 9 of 10",)), "a wrapper failed after it"


def test_sbatch_is_started_with_what_jobs_inherit_and_nothing_else(
    stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SECRET", "WANDB_RUN_ID", "LISTED", "SLURM_JOB_NAME"):
        monkeypatch.setenv(name, "1")
    program(stand_in, "sbatch", f"env > {tmp_path}/env; echo Submitted batch job 62")
    site = SiteProfile(gpus=0, env_allow=["LISTED", "WANDB_RUN_ID"])
    ArrayExecutor(tmp_path / "submissions", SlurmClient(), site).submit_text_array("true", 1, told(site))
    names = {line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
    assert {"LISTED", "PATH"} <= names
    assert not {"SECRET", "WANDB_RUN_ID", "SLURM_JOB_NAME"} & names


def test_without_sbatch_there_is_another_place_to_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match="no Slurm is installed here; choose cluster=local"):
        submit(tmp_path)


def test_a_script_is_for_as_many_jobs_as_there_are(tmp_path: Path) -> None:
    site = SiteProfile(max_array=2, array_parallelism=1)
    texts = executor_on(site, tmp_path).texts([job(f"p{n:03d}") for n in range(5)])
    counts = [line for text in texts for line in text.splitlines() if "--array" in line]
    assert counts == [f"#SBATCH --array={range_}%1" for range_ in ("0-1", "0-1", "0-0")]
