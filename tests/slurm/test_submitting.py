"""Profiles become batch scripts; sbatch may hang, talk nonsense or refuse, and nothing is submitted twice."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm.client import SlurmClient
from slurm.errors import ClusterError
from slurm.executor import SlurmExecutor
from slurm.inquiry import ARRAYS_A_TIME
from slurm.jobs import ExecutorContext, Job
from slurm.site import Shape, SiteProfile, option_name

ROOT = Path(__file__).parents[2]


def job(name: str = "p000", ranks: int = 1) -> Job:
    return Job(name, ("true",), Path("log.txt"), {}, ranks)


def _executor(site: SiteProfile, folder: Path) -> SlurmExecutor:
    return SlurmExecutor.of(ExecutorContext(site, folder, "demo", ROOT))


def text(site: SiteProfile, folder: Path, *jobs: Job) -> str:
    return "\n".join(_executor(site, folder).texts(jobs or [job()]))


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
        ({"gpus": 0}, "export CUDA_VISIBLE_DEVICES="),
        ({"wckey": "w1"}, "#SBATCH --wckey=w1"),
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


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs before the PATH: stand-ins for Slurm's, which note how often they are called."""
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("SLURM_CONF", raising=False)
    for name in ("sbatch", "squeue", "sacct", "scontrol", "srun", "scancel"):
        program(programs, name, "exit 0")
    return programs


def program(folder: Path, name: str, body: str) -> None:
    (folder / name).write_text(f'#!/bin/sh\necho "$@" >> {folder}/{name}.calls\n{body}\n')
    (folder / name).chmod(0o755)


def calls(folder: Path, name: str) -> int:
    file = folder / f"{name}.calls"
    return len(file.read_text().splitlines()) if file.exists() else 0


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


def on_stand_ins(tmp_path: Path, **fields: object):
    ex = _executor(SiteProfile(poll_min_s=0.01, fs_delay_s=1.0, **fields), tmp_path / "sweep")  # type: ignore[arg-type]
    clock = Clock()
    ex._clock = ex._submitter._clock = clock
    return ex, clock


def test_a_talkative_sbatch_counts_as_unknown_and_is_looked_up_before_it_is_repeated(
    stand_in: Path, tmp_path: Path
) -> None:
    program(stand_in, "sbatch", "echo 'Welcome to the cluster!'")
    ex, clock = on_stand_ins(tmp_path)
    ex.submit([job()])
    (token,) = ex.journal.submissions
    program(stand_in, "squeue", f"echo '55|0|55|RUNNING|None|n1|perfsweep:{token}|demo.{token}'")
    for _ in range(3):
        clock.now += 10
        ex.poll()
    assert calls(stand_in, "sbatch") == 1
    assert ex.journal.submissions[token].array == "55"


def test_a_submission_that_never_arrived_is_repeated_once_the_queue_has_been_asked(
    stand_in: Path, tmp_path: Path
) -> None:
    program(
        stand_in,
        "sbatch",
        "echo 'sbatch: error: Unable to contact slurm controller (connect failure)' >&2; exit 1",
    )
    ex, clock = on_stand_ins(tmp_path)
    ex.submit([job()])
    ex.poll()
    assert calls(stand_in, "sbatch") == 1
    program(stand_in, "sbatch", "echo Submitted batch job 56")
    for _ in range(3):
        clock.now += 10
        ex.poll()
    assert calls(stand_in, "sbatch") == 2
    assert [s.array for s in ex.journal.submissions.values() if s.open] == ["56"]


def test_an_unreachable_queue_changes_nothing_and_is_said_once(stand_in: Path, tmp_path: Path) -> None:
    program(stand_in, "sbatch", "echo Submitted batch job 57")
    ex, clock = on_stand_ins(tmp_path)
    said: list[str] = []
    ex._say = said.append
    ex.submit([job()])
    for answer in (
        "echo 'Unable to contact slurm controller' >&2; exit 1",
        "echo 'some other error' >&2; exit 1",
    ):
        program(stand_in, "squeue", answer)
        for _ in range(5):
            clock.now += 100
            assert ex.poll()["p000"].value == "pending"
    assert len(said) == 1
    assert ex.journal.open_names() == {"p000"}


def test_a_hanging_client_is_given_up(stand_in: Path, tmp_path: Path) -> None:
    program(stand_in, "squeue", "exec sleep 60")
    client = SlurmClient(timeout_s=0.3)
    with pytest.raises(ClusterError, match="did not answer within"):
        client.queue()


def test_a_submit_limit_makes_arrays_smaller_and_then_waits(stand_in: Path, tmp_path: Path) -> None:
    limit = (
        "sbatch: error: AssocMaxSubmitJobLimit\\nsbatch: error: Batch job submission failed: Job violates"
        " accounting/QOS policy"
    )
    # Takes arrays of up to two elements, and three arrays in all.
    program(
        stand_in,
        "sbatch",
        f"""for script; do :; done
if grep -q -- '--array=0-[01]%' "$script" \\
    && [ $(grep -c . {stand_in}/taken 2>/dev/null || echo 0) -lt 3 ]; then
    echo x >> {stand_in}/taken; echo Submitted batch job $(wc -l < {stand_in}/taken)
else printf '{limit}\\n' >&2; exit 1; fi""",
    )
    ex, clock = on_stand_ins(tmp_path)
    ex.submit([job(f"p{n:03d}") for n in range(8)])
    assert [len(s.names) for s in ex.journal.submissions.values() if s.array] == [2, 2, 2]
    before = calls(stand_in, "sbatch")
    ex.poll()
    assert calls(stand_in, "sbatch") == before, "it backs off"
    (stand_in / "taken").write_text("x\n")
    clock.now += 600
    ex.poll()
    assert sorted(name for s in ex.journal.submissions.values() if s.array for name in s.names) == [
        f"p{n:03d}" for n in range(8)
    ]


def test_a_window_keeps_below_the_sites_limit(stand_in: Path, tmp_path: Path) -> None:
    program(stand_in, "sbatch", "echo Submitted batch job 60")
    ex, _ = on_stand_ins(tmp_path, max_submit=3)
    ex.submit([job(f"p{n:03d}") for n in range(8)])
    assert ex.journal.open_names() == {"p000", "p001", "p002"}


def test_a_poll_asks_slurm_once_however_many_jobs_there_are_and_a_few_times_more_when_they_are_missing(
    stand_in: Path, tmp_path: Path
) -> None:
    program(stand_in, "sbatch", "echo Submitted batch job $$")
    ex, clock = on_stand_ins(tmp_path, max_array=100)
    ex.submit([job(f"p{n:03d}") for n in range(1000)])
    assert len(ex.journal.submissions) == 10
    (stand_in / "rows").write_text(
        "".join(
            f"{s.array}|{i}|{s.array}|RUNNING|None|n1|perfsweep:{token}|demo.{token}\n"
            for token, s in ex.journal.submissions.items()
            for i in range(100)
        )
    )
    program(stand_in, "squeue", f"cat {stand_in}/rows")
    clock.now += 60
    before = ex._client.calls
    ex.poll()
    assert ex._client.calls - before == 1
    (stand_in / "rows").write_text("")
    clock.now += 60
    before = ex._client.calls
    ex.poll()
    assert ex._client.calls - before == 2 + ARRAYS_A_TIME, "squeue, sacct, and some arrays by number"
    assert calls(stand_in, "sacct") == 1


def test_an_sbatch_that_never_says_a_number_is_asked_ever_less_often_and_then_given_up(
    stand_in: Path, tmp_path: Path
) -> None:
    program(stand_in, "sbatch", "echo 'out of cheese'")
    ex, clock = on_stand_ins(tmp_path)
    ex.submit([job()])
    with pytest.raises(ClusterError, match=r"submitted nothing 5 times .* no job number.*out of cheese"):
        for _ in range(200):
            clock.now += 5
            ex.poll()
    assert calls(stand_in, "sbatch") == 5
    assert not ex.journal.open_names()


def test_a_banner_that_speaks_of_a_job_is_not_taken_for_its_number(stand_in: Path, tmp_path: Path) -> None:
    program(stand_in, "sbatch", "echo 'Please cite job 4711 of our centre.'; echo Submitted batch job 62")
    ex, _ = on_stand_ins(tmp_path)
    ex.submit([job()])
    assert [s.array for s in ex.journal.submissions.values()] == ["62"]


def test_a_controller_that_is_down_before_the_first_sbatch_is_waited_for(
    stand_in: Path, tmp_path: Path
) -> None:
    program(stand_in, "sbatch", "echo Submitted batch job 63")
    silent = "echo 'Unable to contact slurm controller (connect failure)' >&2; exit 1"
    program(stand_in, "scontrol", silent)
    ex, clock = on_stand_ins(tmp_path)
    said: list[str] = []
    ex._say = said.append
    ex.submit([job()])
    assert ex.poll()["p000"].value == "pending"
    assert said == [
        "Slurm does not answer (Unable to contact slurm controller (connect failure)): nothing follows from"
        " that, asking again"
    ]
    assert calls(stand_in, "sbatch") == 0
    program(stand_in, "scontrol", "exit 0")
    clock.now += 600
    ex.poll()
    assert ex.journal.open_names() == {"p000"}
    assert calls(stand_in, "sbatch") == 1


def test_the_same_jobs_again_submit_nothing(stand_in: Path, tmp_path: Path) -> None:
    program(stand_in, "sbatch", "echo Submitted batch job 61")
    ex, _ = on_stand_ins(tmp_path)
    ex.submit([job()])
    again, _ = on_stand_ins(tmp_path)
    again.submit([job()])
    assert calls(stand_in, "sbatch") == 1
