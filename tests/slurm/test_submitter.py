"""How waiting jobs become arrays, and what follows where the site takes none of them."""

from __future__ import annotations

import itertools
import json
import stat
import sys
from pathlib import Path

import pytest
from stand_ins import ROOT, Clock, calls, on_stand_ins, program

from perfsweep.slurm.errors import ClusterError
from perfsweep.slurm.executor import SlurmExecutor
from perfsweep.slurm.jobs import PYTHON, ExecutorContext, Job
from perfsweep.slurm.journal import Verdict
from perfsweep.slurm.retry import Action
from perfsweep.slurm.site import SiteProfile
from perfsweep.slurm.states import End

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
    return max(folder.rglob("*submission_file*.sh"), key=lambda path: path.stat().st_mtime_ns).read_text()


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("MaxArraySize = 2", [2, 2, 1]),
        ("MaxArraySize = 1001", [3, 2]),
        ("MaxArraySize = 0", [3, 2]),
        ("MaxArraySize = many", [3, 2]),
        ("", [3, 2]),
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


def test_what_an_elements_start_needs_stands_in_a_file_without_the_place_of_the_interpreter(
    stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program(stand_in, "sbatch", TAKES)
    ex, _ = on_stand_ins(tmp_path, requeue=False, max_retries=7, heartbeat_s=9.0)
    ex.submit(jobs(2, env={"A": "1"}, ranks=2, resources={"time_min": 5}))
    (token,) = ex.journal.submissions
    values = json.loads((tmp_path / f"sweep/submissions/{token}.json").read_text())
    assert {name: values[name] for name in ("token", "requeue", "max_retries", "heartbeat_s", "digest")} == {
        "token": token,
        "requeue": False,
        "max_retries": 7,
        "heartbeat_s": 9.0,
        "digest": None,
    }
    assert values["jobs"][1] == {
        "name": "p001",
        "command": [PYTHON, "-m", "pack"],
        "env": {"A": "1"},
        "log": str(tmp_path / "log.txt"),
        "ranks": 2,
        "resources": {"time_min": 5},
    }
    assert f"--job-name=demo.{token}" in script(tmp_path)
    assert f"--comment=perfsweep:{token}" in script(tmp_path)


def test_jobs_that_were_handed_over_are_read_back_as_they_were_submitted_last(
    stand_in: Path, tmp_path: Path
) -> None:
    program(stand_in, "sbatch", TAKES)
    ex, _ = on_stand_ins(tmp_path)
    lost = ex.journal.submitting(["p009"], None)
    ex.submit(jobs(1, env={"A": "1"}, ranks=2, resources={"time_min": 5}))
    ex.journal.ended(list(ex.journal.submissions.values())[1], 0, Verdict(End.FAILED, Action.FINAL, ""))
    ex.submit(jobs(1, env={"A": "2"}, ranks=2, resources={"time_min": 6}))
    (found,) = ex._submitter.submitted_jobs()
    assert not (tmp_path / f"sweep/submissions/{lost.token}.json").exists(), "its submitter died"
    assert (found.name, found.command, found.env) == ("p000", (PYTHON, "-m", "pack"), {"A": "2"})
    assert (found.ranks, found.resources, found.log.name) == (2, {"time_min": 6}, "log.txt")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("invalid partition specified: x", "Slurm refuses cluster.partition=x: invalid partition"),
        ("Invalid qos specification", "Slurm refuses cluster.qos: Invalid qos specification"),
        ("out of cheese", "Slurm refuses the sweep: out of cheese; `perfsweep doctor cluster=...` shows"),
    ],
)
def test_a_refusal_names_the_field_and_what_stands_there(
    stand_in: Path, tmp_path: Path, answer: str, message: str
) -> None:
    program(stand_in, "sbatch", f"echo 'sbatch: error: {answer}' >&2; exit 1")
    ex, _ = on_stand_ins(tmp_path, partition="x")
    with pytest.raises(ClusterError) as refused:
        ex.submit(jobs(2))
    assert str(refused.value).startswith(message)
    assert calls(stand_in, "sbatch") == 1


def pressed(ex: SlurmExecutor, clock: Clock, times: int) -> None:
    for _ in range(times):
        clock.now += 1000
        ex._submit_waiting()


def test_a_limit_for_a_single_job_is_waited_for_as_long_as_one_of_ours_is_queued(
    stand_in: Path, tmp_path: Path
) -> None:
    program(stand_in, "sbatch", TAKES)
    ex, clock = on_stand_ins(tmp_path, max_array=1)
    ex.submit(jobs(1))
    program(stand_in, "sbatch", SUBMIT_LIMIT)
    ex.submit(jobs(2)[1:])
    pressed(ex, clock, 9)
    assert calls(stand_in, "sbatch") == 11


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
        ("QOSMaxSubmitJobPerUserLimit", "exit 1"),
        ("QOSGrpSubmitJobsLimit", ""),
        ("MaxSubmitJobsPerAccount", ""),
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


def test_a_submission_that_passes_ends_the_waiting(stand_in: Path, tmp_path: Path) -> None:
    program(stand_in, "squeue", OWN_JOB)
    ex, clock = on_stand_ins(tmp_path, max_array=1)
    for number in range(3):
        program(stand_in, "sbatch", SUBMIT_LIMIT)
        ex.submit(jobs(number + 1)[number:])
        pressed(ex, clock, 3)
        program(stand_in, "sbatch", TAKES)
        pressed(ex, clock, 1)
        assert ex._submitter._delay_s == 0
    assert len(sizes(ex)) == 3


@pytest.mark.parametrize(("times", "least", "most"), [(1, 30.0, 36.0), (3, 120.0, 144.0), (20, 300.0, 360.0)])
def test_each_wait_is_about_twice_as_long_as_the_one_before_up_to_five_minutes(
    stand_in: Path, tmp_path: Path, times: int, least: float, most: float
) -> None:
    ex, clock = on_stand_ins(tmp_path)
    ex._site.poll_min_s = 30.0
    for _ in range(times):
        ex._submitter.back_off()
    assert least <= ex._submitter._not_before - clock.now <= most


def test_limits_of_a_job_are_told_by_the_end_that_it_meets_beyond_them(
    stand_in: Path, tmp_path: Path
) -> None:
    ex, _ = on_stand_ins(tmp_path, memory="4G", time_min=30)
    assert ex._submitter.limits({}) == {"timeout": 30, "out of memory": "mem=4G"}
    own = {"memory": "8G", "mem_flag": "mem-per-cpu", "time_min": 5}
    assert ex._submitter.limits(own) == {"timeout": 5, "out of memory": "mem-per-cpu=8G"}
    assert ex._submitter.limits({"memory": None})["out of memory"] is None


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


def test_nodes_that_failed_are_excluded_beside_those_of_the_profile(stand_in: Path, tmp_path: Path) -> None:
    program(stand_in, "sbatch", TAKES)
    ex, _ = on_stand_ins(tmp_path, exclude="n9")
    failed = ex.journal.submitting(["p009"], None)
    ex.journal.ended(failed, 0, Verdict(End.NODE_FAIL, Action.RETRY, ""), ["n2", "n1"])
    ex.submit(jobs(1))
    assert "#SBATCH --exclude=n9,n1,n2" in script(tmp_path)


@pytest.mark.parametrize(
    ("values", "text"),
    [({"A": "1"}, "export A=1\n"), ({"A": "***"}, None), ({}, None)],
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


def test_jobs_of_one_shape_keep_their_order_and_smaller_shapes_come_first(
    stand_in: Path, tmp_path: Path
) -> None:
    ex, _ = on_stand_ins(tmp_path)
    small, large = jobs(3), jobs(3, ranks=2)
    longer = jobs(3, resources={"time_min": 90})
    mixed = [large[0], longer[1], small[2], large[1], small[0]]
    groups = [
        (shape.gpus, shape.fields, [j.name for j in group]) for shape, group in ex._submitter.grouped(mixed)
    ]
    assert groups == [
        (1, (("time_min", 90),), ["p001"]),
        (1, (), ["p002", "p000"]),
        (2, (), ["p000", "p001"]),
    ]


def test_names_of_sweeps_become_names_that_slurm_takes(stand_in: Path, tmp_path: Path) -> None:
    ex = SlurmExecutor.of(ExecutorContext(SiteProfile(), tmp_path / "sweep", "my sweep/1-1.2", ROOT))
    (text,) = ex.texts(jobs(1))
    assert "#SBATCH --job-name=my_sweep_1-1.2.TOKEN" in text


@pytest.mark.parametrize("name", ["new\nline", "a\\b", "bell\a"])
def test_a_folder_that_slurm_cannot_write_into_is_refused_before_sbatch(
    stand_in: Path, tmp_path: Path, name: str
) -> None:
    program(stand_in, "sbatch", TAKES)
    (tmp_path / name).mkdir()
    ex, _ = on_stand_ins(tmp_path / name)
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


def test_nodes_that_slurm_does_not_let_exclude_are_taken_again_and_named_once(
    stand_in: Path, tmp_path: Path
) -> None:
    without = 'grep -q -- --exclude "$script" || { echo Submitted batch job 62; exit 0; }'
    down = "echo 'sbatch: error: Requested node configuration is not available' >&2; exit 1"
    program(stand_in, "sbatch", f"for script; do :; done\n{without}\n{down}")
    ex, _ = on_stand_ins(tmp_path)
    said: list[str] = []
    ex._say = said.append
    failed = ex.journal.submitting(["p009"], None)
    ex.journal.ended(failed, 0, Verdict(End.NODE_FAIL, Action.RETRY, ""), ["n2", "n1"])
    ex.submit(jobs(2))
    ex.submit(jobs(3)[2:])
    assert sizes(ex) == [2, 1]
    assert said == ["too few nodes are left without n1 and n2, which failed: packs may run there again"]


def test_an_sbatch_that_never_says_anything_is_given_up_with_its_last_words(
    stand_in: Path, tmp_path: Path
) -> None:
    program(stand_in, "sbatch", "echo 'sbatch: error: Connection refused' >&2; exit 1")
    ex, _ = on_stand_ins(tmp_path)
    ex.submit(jobs(1))
    for _ in range(4):
        ex._submitter.never_arrived()
    with pytest.raises(ClusterError, match=r"submitted nothing 5 times and did not say .*: .*Connection ref"):
        ex._submitter.never_arrived()
