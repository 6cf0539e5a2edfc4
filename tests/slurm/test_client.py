"""What is made of Slurm's answers, row by row and column by column, and of its errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from stand_ins import calls, program

from perfsweep.slurm.client import (
    MOST_ELEMENTS,
    Forbidden,
    NoAccounting,
    Refused,
    Sighting,
    SlurmClient,
    Unreachable,
    indices,
    out_of_reach,
    parse_accounting,
    parse_jobs,
    parse_queue,
)
from perfsweep.slurm.executor import SlurmExecutor
from perfsweep.slurm.site import SiteProfile

MARK, T = "perfsweep:abc", "2026-11-23T14:05:00"
FORGOTTEN = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"


def test_every_column_of_squeue_has_its_place() -> None:
    seen = ("PENDING", "Priority", "n1", "perfsweep:abc", "demo.abc", "2026-11-23T14:05:00")
    assert list(parse_queue("|".join(("62", "3", "65", *seen)))) == [Sighting("62", 3, "65", *seen)]


def test_every_column_of_sacct_has_its_place_and_only_a_whole_row_counts() -> None:
    row = "62_3|65|CANCELLED by 1000|0:15|n1|perfsweep:abc|demo.abc|d"
    seen = Sighting("62", 3, "65", "CANCELLED", "", "n1", "perfsweep:abc", "demo.abc|d")
    assert list(parse_accounting(f"{row}\n62_4|66|FAILED|1:0|n1|perfsweep:abc\n")) == [seen]


@pytest.mark.parametrize(
    ("row", "seen"),
    [
        (
            "JobId=65 ArrayJobId=62 ArrayTaskId=3 JobName=demo JobState=RUNNING Reason=None NodeList=n1"
            " Comment=perfsweep:abc",
            [Sighting("62", 3, "65", "RUNNING", "None", "n1", "perfsweep:abc", "demo")],
        ),
        (
            "JobId=62 ArrayJobId=62 ArrayTaskId=4-5%2 JobName=demo JobState=PENDING Reason=Priority",
            [Sighting("62", i, "62", "PENDING", "Priority", "", "", "demo") for i in (4, 5)],
        ),
        ("JobId=70 JobState=PENDING", [Sighting("70", None, "70", "PENDING")]),
        ("JobState=PENDING", []),
    ],
    ids=["an element", "several", "no array", "no number"],
)
def test_every_word_of_scontrol_has_its_place(row: str, seen: list[Sighting]) -> None:
    assert list(parse_jobs(row)) == seen


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0,4%1", [0, 4]), (str(MOST_ELEMENTS + 1), [None]), (f"0-{MOST_ELEMENTS + 1}", [None])],
)
def test_an_index_beyond_what_slurm_can_number_is_no_index(text: str, expected: list[int | None]) -> None:
    assert indices(text) == expected


@pytest.mark.parametrize(
    "message",
    [
        "Unable to contact slurm controller (connect failure)",
        "Socket timed out on send/recv operation",
        "Connection refused",
        "Slurm backup controller in standby mode",
    ],
)
def test_a_controller_that_was_not_reached_is_told_from_one_that_says_no(message: str) -> None:
    assert out_of_reach(f"sbatch: error: {message}")
    assert not out_of_reach("Invalid partition name specified")


def test_a_program_or_a_configuration_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Forbidden, match=r"^nowhere is not for you here \(it cannot be started: No such file"):
        SlurmClient().run("nowhere")
    lost = SlurmClient(str(tmp_path / "slurm.conf"))
    with pytest.raises(Unreachable, match=r"slurm\.conf does not exist; `make slurm-up` starts"):
        lost.queue()
    assert lost.calls == 0


SPOILING = ("SBATCH_QOS", "SQUEUE_SORT", "SACCT_FORMAT", "SCANCEL_QUIET", "SALLOC_QOS", "SRUN_DEBUG")


@pytest.mark.parametrize("inside", [False, True])
def test_a_client_hears_nothing_of_an_allocation_or_of_a_users_defaults(
    monkeypatch: pytest.MonkeyPatch, inside: bool
) -> None:
    for name in SPOILING:
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("TMPDIR", "/tmp/own")
    monkeypatch.setenv("SLURM_CONF", "/etc/other.conf")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    if inside:
        monkeypatch.setenv("SLURM_JOB_ID", "7")
    env = SlurmClient("/etc/slurm.conf").env
    assert not {*SPOILING, "SLURM_JOB_ID"} & set(env)
    assert (env["LC_ALL"], env["SLURM_CONF"]) == ("C", "/etc/slurm.conf")
    assert ("TMPDIR" in env) == (not inside), "of a job it may be the job's own"
    assert SlurmClient().env["SLURM_CONF"] == "/etc/other.conf"


@pytest.mark.parametrize(
    ("body", "silence"),
    [
        ("echo 'Slurmctld(primary) at n0 is UP'", ""),
        ("echo 'Slurmctld(primary) at n0 is DOWN'", "Slurm's controller does not answer"),
    ],
)
def test_a_controller_is_there_when_it_says_so(stand_in: Path, body: str, silence: str) -> None:
    program(stand_in, "scontrol", body)
    assert SlurmClient().silence() == silence


DENIED = "echo 'scontrol: access denied for user jdoe; use squeue and sacct' >&2; exit 1"
CALLED = "scontrol is not for you here (scontrol: access denied for user jdoe; use squeue and sacct)"


def test_a_forbidden_scontrol_is_called_that_and_the_queue_answers_for_the_controller(stand_in: Path) -> None:
    program(stand_in, "scontrol", DENIED)
    client = SlurmClient()
    assert (client.silence(), client.cluster(), client.config()) == ("", None, {})
    assert client.forbidden == {"scontrol": CALLED}
    program(stand_in, "squeue", "echo 'squeue: error: Unable to contact slurm controller' >&2; exit 1")
    assert client.silence() == "Slurm's controller does not answer"
    program(stand_in, "squeue", "echo no >&2; exit 1")
    assert client.silence() == f"{CALLED}; squeue is not for you here (no)"


@pytest.mark.parametrize("name", ["scontrol", "sacct", "srun"])
def test_a_program_that_is_forbidden_is_named_before_anything_is_submitted(
    stand_in: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(stand_in))
    assert SlurmExecutor.warnings(SiteProfile()) == []
    program(stand_in, name, f"echo {name}: not for you >&2; exit 1")
    (said,) = SlurmExecutor.warnings(SiteProfile())
    assert said.startswith(f"{name} is not for you here (") and "): " in said
    assert SlurmExecutor.warnings(SiteProfile(srun=False)) == ([] if name == "srun" else [said])


@pytest.mark.parametrize("missing", [True, False], ids=["missing", "forbidden"])
def test_without_squeue_the_controller_is_asked_for_all_jobs(
    stand_in: Path, monkeypatch: pytest.MonkeyPatch, missing: bool
) -> None:
    monkeypatch.setenv("PATH", f"{stand_in}:/usr/bin:/bin") if not missing else monkeypatch.setenv(
        "PATH", str(stand_in)
    )
    program(stand_in, "squeue", "echo 'ask the help desk' >&2; exit 1")
    if missing:
        (stand_in / "squeue").unlink()
    program(stand_in, "scontrol", "echo 'JobId=65 ArrayJobId=62 ArrayTaskId=3 JobState=RUNNING'")
    assert [(row.array, row.index, row.state) for row in SlurmClient().queue()] == [("62", 3, "RUNNING")]
    program(stand_in, "scontrol", "exit 0")
    with pytest.raises(Forbidden, match=r"^squeue is not for you here \("):
        SlurmClient().queue()


def test_a_site_without_accounts_is_asked_once_and_another_error_may_pass(stand_in: Path) -> None:
    client = SlurmClient()
    program(stand_in, "sacct", "echo 'Slurm accounting storage is disabled' >&2; exit 1")
    for _ in range(3):
        with pytest.raises(NoAccounting):
            client.accounted(["62"])
    assert calls(stand_in, "sacct") == 1
    other = SlurmClient()
    program(stand_in, "sacct", "echo 'sacct: error: Problem talking to the database' >&2; exit 1")
    for _ in range(2):
        with pytest.raises(Refused, match="Problem talking"):
            other.accounted(["62"])
    assert calls(stand_in, "sacct") == 3
    program(stand_in, "sacct", "echo 'accounts are for administrators' >&2; exit 1")
    for _ in range(2):
        with pytest.raises(NoAccounting, match="sacct is not for you here"):
            other.accounted(["62"])
    assert calls(stand_in, "sacct") == 4


def test_a_clock_that_is_wrong_here_hides_no_job_from_the_accounts(stand_in: Path) -> None:
    row = "62_0|63|COMPLETED|0:0|n1|perfsweep:token|demo"
    began = f"test $(date -d ${{6}} +%s) -lt 100000 && echo '{row}'"  # the word after -S
    program(stand_in, "sacct", f'test "$5" = -S && {began}')
    assert [one.array for one in SlurmClient().accounted(["62"])] == ["62"]


def test_a_number_that_the_controller_does_not_know_is_an_answer_and_any_other_error_is_none(
    stand_in: Path,
) -> None:
    program(stand_in, "scontrol", FORGOTTEN)
    assert SlurmClient().shown("62") == []
    program(stand_in, "scontrol", "echo 'Access denied' >&2; exit 1")
    with pytest.raises(Refused, match="Access denied"):
        SlurmClient().shown("62")
    program(stand_in, "scontrol", "echo 'JobId=65 ArrayJobId=62 ArrayTaskId=3 JobState=RUNNING'")
    assert [row.index for row in SlurmClient().shown()] == [3]
    asked = (stand_in / "scontrol.calls").read_text().splitlines()
    assert asked == ["show job -o 62", "show job -o 62", "show job -o"]


def test_of_a_job_that_is_forgotten_the_nodes_that_are_down_are_those_that_failed(stand_in: Path) -> None:
    rows = "NodeName=n1 State=IDLE\nNodeName=n2 State=FAILING\nNodeName=n3 State=IDLE*"
    program(stand_in, "scontrol", f'[ "$2" = node ] && echo "{rows}" && exit 0\n{FORGOTTEN}')
    assert SlurmClient().out_of_service("65", "n[1-3]") == ["n2", "n3"]


def test_a_program_that_hangs_is_given_up_and_counts_as_one_that_was_not_reached(stand_in: Path) -> None:
    program(stand_in, "scontrol", "exec sleep 60")
    client = SlurmClient()
    client.timeout_s = 0.05
    with pytest.raises(Unreachable, match=r"^scontrol did not answer within 0\.05 s$"):
        client.run("scontrol", "ping")
    assert client.silence() == "Slurm's controller does not answer"
