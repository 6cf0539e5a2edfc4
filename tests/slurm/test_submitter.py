"""Profiles become batch scripts; sbatch may hang, talk nonsense or refuse, and nothing is submitted twice."""

from __future__ import annotations

import itertools
import stat
import sys
import time
from pathlib import Path

import pytest
from stand_ins import ROOT, Clock, calls, executor_on, job, on_stand_ins, program
from waiting import until

from perfsweep.slurm.errors import ClusterError
from perfsweep.slurm.executor import SlurmExecutor
from perfsweep.slurm.jobs import ExecutorContext, Job, JobState
from perfsweep.slurm.observation import ARRAYS_A_TIME
from perfsweep.slurm.site import SiteProfile


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
    for _ in range(2):
        clock.now += 600
        ex.poll()
    assert said[1:] == ["Slurm answers again"]
    assert ex.journal.open_names() == {"p000"}
    assert calls(stand_in, "sbatch") == 1


def test_a_last_job_that_the_site_refuses_is_said_and_the_others_are_followed(
    stand_in: Path, tmp_path: Path
) -> None:
    program(stand_in, "sbatch", "echo Submitted batch job 64")
    ex, _ = on_stand_ins(tmp_path)
    said: list[str] = []
    ex._say = said.append
    ex.submit([job()])
    program(stand_in, "sbatch", "echo 'sbatch: error: Batch job submission failed: Invalid qos' >&2; exit 1")
    ex.submit_last(job("collect"))
    assert said == [
        "the last job, collect, is not submitted (Batch job submission failed: Invalid qos): what it would"
        " write is written by the command that follows, or by `perfsweep compare`"
    ]
    assert ex.journal.open_names() == {"p000"}


def said_by(ex: SlurmExecutor) -> list[str]:
    said: list[str] = []
    ex._say = ex._inquiry._say = said.append
    return said


FAILS = "Batch job submission failed: "
POLICY = f"{FAILS}Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            [
                *("2 ERRORS FOUND:", "All GPU jobs must name a project with --account"),
                *("All jobs must name a file system with --licenses", f"{FAILS}Unspecified error"),
            ],
            f"Slurm refuses the sweep: {FAILS}Unspecified error; `perfsweep doctor cluster=...` shows what it"
            " takes\nthe site says:\n  2 ERRORS FOUND:\n  All GPU jobs must name a project with --account\n"
            "  All jobs must name a file system with --licenses",
        ),
        (
            ["Connection refused? See go/vpn. QOSMaxSubmitJob is 9", f"{FAILS}Invalid account specified"],
            f"Slurm refuses cluster.account: {FAILS}Invalid account specified\nthe site says:\n"
            "  Connection refused? See go/vpn. QOSMaxSubmitJob is 9",
        ),
        (
            ["QOSMinGRES", POLICY],
            "Slurm refuses the sweep: QOSMinGRES: this qos takes larger jobs only: ask for more, or choose"
            " another cluster.qos",
        ),
        (["jobs with invalid qos are refused"], "Slurm refuses the sweep: jobs with invalid qos are refused"),
        (["Ask us", f"{FAILS}invalid partition specified: x"], "Slurm refuses cluster.partition=x: Batch "),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_what_will_not_change_by_waiting_ends_the_sweep_with_slurms_word_and_the_sites(
    stand_in: Path, tmp_path: Path, lines: list[str], message: str
) -> None:
    own = "" if len(lines) == 1 else "sbatch: error: "  # what a wrapper says is no word of Slurm's
    (stand_in / "said").write_text("".join(f"{own}{line}\n" for line in lines))
    program(stand_in, "sbatch", f"cat {stand_in}/said >&2; exit 1")
    ex, _ = on_stand_ins(tmp_path, partition="x")
    with pytest.raises(ClusterError) as refused:
        ex.submit([job(f"p{n:03d}") for n in range(8)])
    assert str(refused.value).startswith(message)
    assert calls(stand_in, "sbatch") == 1
    assert not ex.journal.open_names()


def test_what_a_site_says_of_a_job_that_it_takes_is_shown_once_and_changes_nothing(
    stand_in: Path, tmp_path: Path
) -> None:
    program(
        stand_in,
        "sbatch",
        "echo 'Batch job submission failed: never here'; echo Submitted batch job $$\n"
        "printf 'sbatch: error: Invalid qos is what you will never hear\\n\\033[2Jlua: 3 days left\\n' >&2",
    )
    ex, _ = on_stand_ins(tmp_path, max_array=1)
    said = said_by(ex)
    ex.submit([job("p000"), job("p001")])
    assert ex.journal.open_names() == {"p000", "p001"}
    assert said == [
        "the site says: sbatch: error: Invalid qos is what you will never hear",
        "the site says: [2Jlua: 3 days left",
    ]
    ex.submit([job("p002")])
    assert len(said) == 2 and len(ex.journal.submissions) == 3


@pytest.mark.parametrize("name", ["SBATCH_CLUSTERS", "SLURM_CLUSTERS"])
def test_a_shell_that_names_another_cluster_is_refused_before_sbatch(
    stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    program(stand_in, "scontrol", "echo 'ClusterName = alpha'")
    program(stand_in, "sbatch", "echo Submitted batch job 7")
    monkeypatch.setenv(name, "beta")
    ex, _ = on_stand_ins(tmp_path)
    with pytest.raises(ClusterError, match=f"^{name}=beta: jobs go to alpha, .* Unset {name}, or start"):
        ex.submit([job()])
    assert calls(stand_in, "sbatch") == 0 and not ex.journal.open_names()
    monkeypatch.setenv(name, "alpha")
    ex.submit([job()])
    assert ex.journal.open_names() == {"p000"}


@pytest.mark.parametrize("how", ["sbatch names another", "revoked here"])
def test_a_job_that_another_cluster_has_is_never_forgotten_and_never_submitted_twice(
    stand_in: Path, tmp_path: Path, how: str
) -> None:
    program(stand_in, "scontrol", "echo 'ClusterName = alpha'")
    named = how == "sbatch names another"
    program(stand_in, "sbatch", f"echo Submitted batch job 7{' on cluster beta' if named else ''}")
    ex, clock = on_stand_ins(tmp_path)
    said = said_by(ex)
    ex.submit([job()])
    (token,) = ex.journal.submissions
    assert ex.journal.submissions[token].cluster == ("beta" if named else "alpha")
    if not named:
        program(stand_in, "squeue", f"echo '7|0|7|REVOKED|None||perfsweep:{token}|demo.{token}|N/A'")
    for _ in range(20):
        clock.now += 100
        assert ex.poll() == {"p000": JobState.PENDING}
    assert ex.held() == ["p000"]
    assert ex.notes()["p000"] == "on another cluster: follow it from a machine of that cluster"
    told = "packs of this sweep are on cluster beta, and this is alpha: its Slurm knows nothing of them"
    assert said == ([told] if named else [])
    assert calls(stand_in, "sbatch") == 1
    if named:
        with pytest.raises(ClusterError) as refused:
            ex.cancel()
        assert str(refused.value).startswith("cancelled 0 jobs here; p000 are on cluster beta, whose jobs")
        assert "`scancel --clusters=beta 7`" in str(refused.value)
    own = tmp_path / "sweep" / "submissions" / token
    own.mkdir(parents=True)
    (own / "0.end-0.json").write_text('{"status": 0, "signals": []}')
    clock.now += 100
    assert ex.poll() == {"p000": JobState.ENDED}, "its own word counts everywhere"


TAKES = "echo Submitted batch job 62"
SUBMIT_LIMIT = "echo 'sbatch: error: AssocMaxSubmitJobLimit' >&2; exit 1"


def jobs(count: int, **changes: object) -> list[Job]:
    return [
        Job(f"p{n:03d}", (sys.executable, "-m", "pack"), Path("log.txt"), **changes)  # type: ignore[arg-type]
        for n in range(count)
    ]


def sizes(ex: SlurmExecutor) -> list[int]:
    return [len(s.names) for s in ex.journal.submissions.values() if s.array]


def script(folder: Path) -> str:
    """The batch script that was submitted last."""
    return max(folder.rglob("*_submission_file.sh"), key=lambda path: path.stat().st_mtime_ns).read_text()


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        *(("MaxArraySize = 2", [2, 2, 1]), ("MaxArraySize = 1", [1] * 5), ("MaxArraySize = 0", [3, 2])),
        *(("MaxArraySize = many", [3, 2]), ("", [3, 2])),
    ],
)
def test_an_array_has_as_many_elements_as_the_profile_and_the_site_allow(
    stand_in: Path, tmp_path: Path, config: str, expected: list[int]
) -> None:
    program(stand_in, "scontrol", f"echo '{config}'")
    program(stand_in, "sbatch", TAKES)
    ex, _ = on_stand_ins(tmp_path, max_array=3)
    ex.submit(jobs(5))
    assert sizes(ex) == expected


def pressed(ex: SlurmExecutor, clock: Clock, times: int) -> None:
    for _ in range(times):
        clock.now += 1000
        ex._submit_waiting()


OWN_JOB = "echo '9|N/A|9|RUNNING|None|n1|(null)|mine|N/A'"
"""A job of this user that no sweep has submitted, as squeue shows it."""


@pytest.mark.parametrize("count", [1, 5], ids=["of one job", "of several"])
def test_where_this_user_has_nothing_queued_the_second_refusal_is_for_good(
    stand_in: Path, tmp_path: Path, count: int
) -> None:
    program(stand_in, "sbatch", SUBMIT_LIMIT)
    program(stand_in, "squeue", OWN_JOB.replace("RUNNING", "COMPLETED"))
    ex, _ = on_stand_ins(tmp_path)
    with pytest.raises(ClusterError) as refused:
        ex.submit(jobs(count))
    assert str(refused.value) == (
        "Slurm refuses even a single job while none of yours is queued: AssocMaxSubmitJobLimit. Choose"
        " another cluster.qos, cluster.account or cluster.partition, or ask the site."
    )
    assert calls(stand_in, "sbatch") == 2


@pytest.mark.parametrize(
    ("limit", "squeue"),
    [
        ("QOSMaxSubmitJobPerUserLimit", OWN_JOB),
        ("Slurm temporarily unable to accept job, sleeping and retrying", ""),
    ],
)
def test_a_limit_that_the_end_of_any_job_may_lift_is_waited_for_and_said_once(
    stand_in: Path, tmp_path: Path, limit: str, squeue: str
) -> None:
    program(stand_in, "sbatch", f"echo 'sbatch: error: {limit}' >&2; exit 1")
    program(stand_in, "squeue", squeue)
    ex, clock = on_stand_ins(tmp_path, poll_max_s=60.0)
    ex._site.poll_min_s = 30.0
    said: list[str] = []
    ex._say = said.append
    ex.submit(jobs(1))
    asked = [clock.now]
    for _ in range(2000):
        clock.now += 1
        before = calls(stand_in, "sbatch")
        if clock.now >= ex._submitter._not_before:
            ex._submit_waiting()
        asked += [clock.now] * (calls(stand_in, "sbatch") - before)
    pauses = [after - before for before, after in itertools.pairwise(asked)]
    assert 30 <= min(pauses) < 300 <= max(pauses), pauses
    assert said == [
        f"the site says: sbatch: error: {limit}",
        f"Slurm takes no more jobs for now ({limit}): the rest is submitted later, asked for every 30 to 300"
        " s; what is submitted goes on",
    ]
    program(stand_in, "sbatch", TAKES)
    pressed(ex, clock, 1)
    assert sizes(ex) == [1]


def test_the_last_job_waits_for_all_others_and_asks_for_no_gpu(stand_in: Path, tmp_path: Path) -> None:
    program(stand_in, "sbatch", f"echo Submitted batch job $(grep -c . {stand_in}/sbatch.calls)")
    ex, _ = on_stand_ins(tmp_path, max_array=1, gpus=2, cpus_per_task=3, sbatch=["--licenses=a"])
    ex.submit(jobs(2))
    assert "--licenses=a" in script(tmp_path)
    ex.submit_last(Job("collect", ("true",), Path("log.txt")))
    text = script(tmp_path)
    assert "#SBATCH --dependency=afterany:1:2" in text
    assert "#SBATCH --cpus-per-task=1" in text
    assert "--gres" not in text and "--licenses" not in text
    ex.submit_last(Job("collect", ("true",), Path("log.txt")))
    assert calls(stand_in, "sbatch") == 3, "one waits already"


@pytest.mark.parametrize(
    ("values", "text"),
    [({"A": "it's $HOME"}, """export A='it'"'"'s $HOME'\n"""), ({"A": "***"}, None), ({}, None)],
    ids=["given", "from a sweep.yaml", "none"],
)
def test_variables_to_set_are_in_a_file_for_this_user_alone(
    stand_in: Path, tmp_path: Path, values: dict[str, str], text: str | None
) -> None:
    program(stand_in, "sbatch", TAKES)
    ex, _ = on_stand_ins(tmp_path, env_set=values)
    ex.submit(jobs(1))
    file = tmp_path / "sweep/submissions/env_set.sh"
    assert (file.read_text() if file.exists() else None) == text
    assert text is None or stat.S_IMODE(file.stat().st_mode) == 0o600


def test_names_of_sweeps_become_names_that_slurm_takes(stand_in: Path, tmp_path: Path) -> None:
    ex = SlurmExecutor.of(ExecutorContext(SiteProfile(), tmp_path / "sweep", "my sweep/1-1.2", ROOT))
    (text,) = ex.texts(jobs(1))
    assert "#SBATCH --job-name=my_sweep_1-1.2.TOKEN" in text


def test_a_folder_that_slurm_cannot_write_into_is_refused_before_sbatch(
    stand_in: Path, tmp_path: Path
) -> None:
    program(stand_in, "sbatch", TAKES)
    (tmp_path / "new\nline").mkdir()
    ex, _ = on_stand_ins(tmp_path / "new\nline")
    with pytest.raises(ClusterError, match=r"^runs='.*': Slurm writes nothing into .* Choose another with"):
        ex.submit(jobs(1))
    assert calls(stand_in, "sbatch") == 0 and not ex.journal.submissions


@pytest.mark.parametrize(
    ("indices", "expected", "asked"), [("[01]", [1, 2, 2], 4), ("0", [1, 1, 1, 1, 1], 7)]
)
def test_an_array_that_is_more_than_a_site_takes_at_once_is_halved_until_it_is_not(
    stand_in: Path, tmp_path: Path, indices: str, expected: list[int], asked: int
) -> None:
    few = f"grep -q -- '--array=0-{indices}%' \"$script\" && echo Submitted batch job 62 && exit 0"
    program(stand_in, "sbatch", f"for script; do :; done\n{few}\n{SUBMIT_LIMIT}")
    ex, _ = on_stand_ins(tmp_path)
    ex.submit(jobs(5))
    assert (sizes(ex), calls(stand_in, "sbatch")) == (expected, asked)


DAY_S = 86400.0


class Wall:
    """The time of day as it is set."""

    def __init__(self) -> None:
        self._real, self.off_s = time.time, 0.0

    def __call__(self) -> float:
        return self._real() + self.off_s


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> Wall:
    wall = Wall()
    monkeypatch.setattr(time, "time", wall)
    return wall


@pytest.mark.parametrize("moved_s", [-3 * DAY_S, 3 * DAY_S])
def test_what_sbatch_did_not_take_is_submitted_again_after_the_clock_was_set(
    stand_in: Path, tmp_path: Path, wall: Wall, moved_s: float
) -> None:
    unheard = "echo 'sbatch: error: Unable to contact slurm controller (connect failure)' >&2; exit 1"
    program(stand_in, "sbatch", unheard)
    ex = executor_on(SiteProfile(poll_min_s=0.01, poll_max_s=0.02, fs_delay_s=0.01), tmp_path / "sweep")
    ex.submit([job()])
    until(lambda: ex.poll() and calls(stand_in, "squeue") > 2, "questions about it")
    wall.off_s = moved_s
    program(stand_in, "sbatch", "echo Submitted batch job 57")
    submitted = ex.journal.submissions
    until(lambda: ex.poll() and "57" in [s.array for s in submitted.values()], "another sbatch")
    assert ex.journal.open_names() == {job().name}, "it waits in the queue, and nothing else does"


def test_a_job_whose_number_nobody_was_told_and_that_a_controller_forgot_ends(
    stand_in: Path, tmp_path: Path
) -> None:
    program(stand_in, "sbatch", "echo 'Socket timed out on send/recv operation' >&2; exit 1")
    ex, clock = on_stand_ins(tmp_path)
    ex.submit([job()])
    (token,) = ex.journal.submissions
    own = tmp_path / "sweep" / "submissions" / token
    own.mkdir(parents=True)
    (own / "0.start-0.json").write_text("{}")
    (own / "0.end-0.json").write_text('{"status": 75, "signals": ["SIGTERM"]}')  # its node asked for it
    for _ in range(10):
        clock.now += 10
        ex.poll()
    assert ex.poll() == {"p000": JobState.FAILED}
    assert "Slurm has forgotten it" in ex.notes()["p000"]
