"""Profiles become batch scripts; sbatch may hang, talk nonsense or refuse, and nothing is submitted twice."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from stand_ins import calls, job, on_stand_ins, program

from perfsweep.slurm.client import SlurmClient
from perfsweep.slurm.errors import ClusterError
from perfsweep.slurm.executor import SlurmExecutor
from perfsweep.slurm.jobs import JobState
from perfsweep.slurm.observation import ARRAYS_A_TIME


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
    assert [len(s.names) for s in ex.journal.submissions.values() if s.array] == [1, 2, 2]
    before = calls(stand_in, "sbatch")
    ex.poll()
    assert calls(stand_in, "sbatch") == before, "it backs off"
    (stand_in / "taken").unlink()
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


def test_a_submission_that_nobody_answers_is_tried_ever_less_often(stand_in: Path, tmp_path: Path) -> None:
    program(stand_in, "scontrol", "echo 'Unable to contact slurm controller' >&2; exit 1")
    ex, clock = on_stand_ins(tmp_path)
    ex._site.poll_min_s = 1.0
    ex.submit([job()])
    for _ in range(400):
        clock.now += 0.25
        ex.poll()
    assert calls(stand_in, "scontrol") < 12


def test_a_job_whose_number_nobody_was_told_runs_when_its_records_say_so(
    stand_in: Path, tmp_path: Path
) -> None:
    program(stand_in, "sbatch", "echo 'Socket timed out on send/recv operation' >&2; exit 1")
    ex, clock = on_stand_ins(tmp_path)
    ex.submit([job()])
    (token,) = ex.journal.submissions
    own = tmp_path / "sweep" / "submissions" / token
    own.mkdir(parents=True)
    (own / "0.start-0.json").write_text("{}")
    (own / "0.beat").touch()
    program(stand_in, "squeue", "echo 'Unable to contact slurm controller' >&2; exit 1")
    clock.now = time.time() + 1
    assert ex.look() == {"p000": JobState.RUNNING}


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
            [
                "Invalid partition and qos names are listed at go/slurm",
                f"{FAILS}Invalid feature specification",
            ],
            f"Slurm refuses cluster.constraint: {FAILS}Invalid feature specification\nthe site says:\n"
            "  Invalid partition and qos names are listed at go/slurm",
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
        (
            ["QOSMaxCpuPerJobLimit", POLICY],
            "Slurm refuses the sweep: QOSMaxCpuPerJobLimit: ask for less, or choose another partition or qos",
        ),
        (
            ["AssocMaxWallDurationPerJobLimit", POLICY],
            "Slurm refuses the sweep: AssocMaxWallDurationPerJobLimit: lower cluster.time_min, or choose",
        ),
        (
            ["AssocGrpBillingMinutes", POLICY],
            "Slurm refuses the sweep: AssocGrpBillingMinutes: this budget is spent: ask the site for more",
        ),
        (
            ["AccountNotAllowed", POLICY],
            "Slurm refuses the sweep: AccountNotAllowed: choose another cluster.",
        ),
        (["QOSNotAllowed", POLICY], "Slurm refuses the sweep: QOSNotAllowed: choose another cluster."),
        (["jobs with invalid qos are refused"], "Slurm refuses the sweep: jobs with invalid qos are refused"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_what_will_not_change_by_waiting_ends_the_sweep_with_slurms_word_and_the_sites(
    stand_in: Path, tmp_path: Path, lines: list[str], message: str
) -> None:
    own = "" if len(lines) == 1 else "sbatch: error: "  # what a wrapper says is no word of Slurm's
    (stand_in / "said").write_text("".join(f"{own}{line}\n" for line in lines))
    program(stand_in, "sbatch", f"cat {stand_in}/said >&2; exit 1")
    ex, _ = on_stand_ins(tmp_path)
    with pytest.raises(ClusterError) as refused:
        ex.submit([job(f"p{n:03d}") for n in range(8)])
    assert str(refused.value).startswith(message)
    assert calls(stand_in, "sbatch") == 1
    assert not ex.journal.open_names()


def test_a_limit_of_this_user_is_waited_for_whatever_else_the_site_says(
    stand_in: Path, tmp_path: Path
) -> None:
    lines = ("Invalid qos? See go/qos", "QOSMaxSubmitJobPerUserLimit", POLICY)
    (stand_in / "said").write_text("".join(f"sbatch: error: {line}\n" for line in lines))
    program(stand_in, "sbatch", f"cat {stand_in}/said >&2; exit 1")
    ex, _ = on_stand_ins(tmp_path)
    said = said_by(ex)
    program(stand_in, "squeue", "echo '9|N/A|9|RUNNING|None|n1|(null)|mine|N/A'")
    ex.submit([job()])
    assert ex.poll()["p000"] is JobState.PENDING
    assert said[:-1] == [f"the site says: sbatch: error: {line}" for line in lines]
    assert said[-1].startswith("Slurm takes no more jobs for now (QOSMaxSubmitJobPerUserLimit: ")


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
