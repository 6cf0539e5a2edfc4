"""What perfsweep doctor says of a cluster, a profile and a GPU, and with which exit status."""

from __future__ import annotations

import os
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from rich.console import Console

from perfsweep.pipelines.commands import doctor
from perfsweep.pipelines.config.types import ClusterConfig, DoctorCommand
from perfsweep.pipelines.execution.executor_choice import Choice
from perfsweep.pipelines.gpu_check import answer
from perfsweep.pipelines.gpu_check.answer import Answer, Line, Verdict
from perfsweep.slurm.diagnosis import Diagnosis, Partition
from perfsweep.slurm.errors import ClusterError
from perfsweep.slurm.jobs import JobState
from perfsweep.slurm.probe import Finding
from perfsweep.workloads.errors import RecordError

PARTITION = Partition("gpu", True, True, "1-00:00:00", "4", "idle", "64", "500000", "gpu:8", "hbm")
SITE = Diagnosis("24.05", {"MaxArraySize": "1001"}, (PARTITION,), True, "a job would start", None, ())
Said = Any


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Said:
    """Asks the doctor about a cluster that answers as given: exit status, and what was printed."""

    def ask(site: Diagnosis | ClusterError = SITE, findings: Any = (), **fields: Any) -> tuple[int, str]:
        def diagnose(cluster: Any, conf: Any) -> Diagnosis:
            if isinstance(site, ClusterError):
                raise site
            return site

        def probe(cluster: Any, runs: Path, modules: tuple, url: str, say: Any) -> Any:
            say("waiting for a node")
            if isinstance(findings, ClusterError):
                raise findings
            return findings

        cluster = ClusterConfig(executor=fields.pop("executor", "slurm"), partition="gpu")
        command = DoctorCommand(cluster=cluster, runs=str(tmp_path), **fields)
        monkeypatch.setattr(doctor.validation, "typed", lambda cfg, of: command)
        monkeypatch.setattr(doctor, "diagnose", diagnose)
        monkeypatch.setattr(doctor, "probe", probe)
        status = doctor.doctor(OmegaConf.create())
        return status, " ".join(capsys.readouterr().out.split())

    return ask


def changed(**fields: Any) -> Diagnosis:
    return Diagnosis(**{**vars(SITE), **fields})


def test_a_profile_that_would_be_accepted_is_fine(said: Said) -> None:
    status, text = said()
    assert status == 0
    assert text.startswith("Slurm 24.05; accounting (sacct) works")
    assert "MaxArraySize 1001" in text and "this profile asks for" in text
    assert text.endswith("a job would start") and "waiting for a node" not in text


def test_a_partition_has_its_default_its_state_and_its_memory(said: Said) -> None:
    text = said(changed(partitions=(PARTITION, Partition("old", False, False, *["-"] * 7))))[1]
    assert "gpu (default) 1-00:00:00 4 idle 64 500000 MB gpu:8 hbm" in text
    assert "old - - down" in text


def test_what_would_be_refused_is_not_probed(said: Said) -> None:
    status, text = said(changed(refused="no such account", warnings=("time limit",)), probe=True)
    assert status == 1
    assert "beware: time limit refused: no such account" in text
    assert "a job would start" not in text and "waiting for a node" not in text


def test_missing_accounting_is_no_trouble(said: Said) -> None:
    status, text = said(changed(accounting=False))
    assert (status, "accounting (sacct) is not available: not needed" in text) == (0, True)


def test_a_cluster_that_does_not_answer_is_one_line(said: Said) -> None:
    status, text = said(ClusterError("no controller\nat all"))
    assert (status, text) == (1, "Slurm does not answer: no controller")


@pytest.mark.parametrize(("executor", "asks"), [("local", False), ("inprocess", False), ("auto", True)])
def test_only_what_may_run_on_slurm_is_asked_about(said: Said, executor: str, asks: bool) -> None:
    status, text = said(executor=executor)
    assert status == 0
    assert ("Slurm 24.05" in text) is asks
    assert (f"cluster.executor={executor}: packs run on this machine" in text) is not asks


@pytest.mark.parametrize(
    ("findings", "status"),
    [
        ([Finding("torch", True, "2.13")], 0),
        ([Finding("torch", True, "2.13"), Finding("W&B", None, "not asked")], 0),
        ([Finding("torch", False, "missing", "install it"), Finding("W&B", True)], 1),
    ],
)
def test_a_probe_has_a_line_for_each_thing(said: Said, findings: list, status: int) -> None:
    ended, text = said(findings=findings, probe=True)
    assert ended == status
    assert "waiting for a node" in text
    assert all(" ".join(str(one).split()) in text for one in findings)


def test_a_probe_that_could_not_be_submitted_fails(said: Said) -> None:
    status, text = said(findings=ClusterError("the job was held"), probe=True)
    assert status == 1 and text.endswith("FAIL probe: the job was held")


def line(verdict: Verdict, name: str = "peer access") -> Line:
    return Line(name=name, verdict=verdict, text="[two] GPUs", stage="3 memory")


def found(*verdicts: Verdict, name: str = "H100") -> Answer:
    device = {"type": "cuda", "name": name}
    given = {"device": device, "driver": None, "versions": {}, "started": 0.0, "seconds": 61.6}
    return Answer(lines=tuple(map(line, verdicts)), **given)


def printed(show: Any) -> str:
    out = StringIO()
    show(Console(file=out, width=200))
    return out.getvalue()


def test_a_line_has_its_stage_its_question_its_verdict_and_its_figure_in_columns() -> None:
    text = printed(lambda console: doctor.show(console, line(Verdict.NEEDS_GPU)))
    assert text == f"{'3 memory':<17} {'peer access':<24} needs a GPU [two] GPUs\n"


@pytest.mark.parametrize(("name", "device"), [("H100", "H100"), ("", "cuda")])
def test_the_sum_counts_each_verdict(name: str, device: str) -> None:
    answer_ = found(Verdict.PASS, Verdict.PASS, Verdict.FAIL, *[Verdict.NEEDS_GPU] * 3, name=name)
    text = printed(lambda console: doctor._conclude(console, answer_, Path("gpu-check.json")))
    assert text == f"{device}: 2 passed, 1 failed, 3 need a GPU; 62 s: gpu-check.json\n"


@pytest.mark.parametrize(
    ("verdict", "status"), [(Verdict.PASS, 0), (Verdict.NEEDS_GPU, 0), (Verdict.FAIL, 1)]
)
def test_here_the_chosen_stages_are_asked_and_a_failure_is_status_1(
    verdict: Verdict, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[Any]()

    def check(folder: Path, device: Any, show: Any, chosen: Any) -> Answer:
        asked.append((folder.name, list(chosen)))
        show(line(verdict))
        return found(verdict)

    monkeypatch.setattr(doctor.stages, "check", check)
    monkeypatch.setattr(doctor.executor_choice, "choose", lambda cluster: Choice("local", "no Slurm"))
    command = DoctorCommand(stages=[3], runs=str(tmp_path / "runs"))
    out = StringIO()
    assert doctor.check_gpu(Console(file=out, width=200), command) == status
    assert asked == [("gpu-check", ["3 memory"])]
    assert out.getvalue().splitlines()[0] == "no Slurm" and len(out.getvalue().splitlines()) == 3


class Remote:
    """An executor whose job ends as a test says, and writes an answer or none."""

    alive, state, writes, why = False, JobState.ENDED, True, ""

    def __init__(self) -> None:
        self.jobs = list[Any]()

    def submitted(self, folder: Path) -> dict[str, bool]:
        return {"gpu-check": self.alive}

    def of(self, context: Any) -> Remote:
        self.context = context
        return self

    def submit(self, jobs: Any) -> None:
        self.jobs += jobs

    def notes(self) -> dict[str, str]:
        return {"gpu-check": self.why} if self.why else {}


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Remote:
    executor = Remote()

    def until_over(job: Remote, *rest: Any) -> dict[str, JobState]:
        if executor.writes:
            answer.write(executor.context.folder, found(Verdict.PASS))
        return {"gpu-check": executor.state}

    monkeypatch.setattr(doctor.executors, "find", lambda name: executor)
    monkeypatch.setattr(doctor, "until_over", until_over)
    monkeypatch.setattr(doctor.code_snapshot, "take", lambda folder: folder / "copy")
    return executor


def elsewhere(folder: Path) -> Answer:
    return doctor._elsewhere(Console(file=StringIO()), folder, ClusterConfig(executor="slurm"), [1, 3])


def test_the_answer_of_a_job_is_read(remote: Remote, tmp_path: Path) -> None:
    assert elsewhere(tmp_path) == found(Verdict.PASS)
    (job,) = remote.jobs
    command = (sys.executable, "-m", "perfsweep.pipelines.gpu_check", str(tmp_path), "1", "3")
    assert (job.name, job.command) == ("gpu-check", command)
    paths = job.env["PYTHONPATH"].split(os.pathsep)
    assert paths[0] == str(tmp_path / "code/copy") and "" not in paths
    assert job.env["PYTHONSAFEPATH"] == "1"


@pytest.mark.parametrize(("alive", "kept"), [(True, True), (False, False)])
def test_an_earlier_answer_is_taken_only_of_a_job_that_lives(
    remote: Remote, tmp_path: Path, alive: bool, kept: bool
) -> None:
    answer.write(tmp_path, found(Verdict.FAIL))
    remote.alive, remote.writes = alive, False
    if kept:
        assert elsewhere(tmp_path) == found(Verdict.FAIL)
    else:
        with pytest.raises(RecordError):
            elsewhere(tmp_path)


@pytest.mark.parametrize(
    ("state", "why", "writes", "says"),
    [
        (JobState.ENDED, "", False, f"the job left no answer: {JobState.ENDED.value}; its log is"),
        (JobState.FAILED, "out of memory", False, "the job left no answer: out of memory; its log is"),
        (JobState.FAILED, "", True, f"the job left no answer: {JobState.FAILED.value}; its log is"),
    ],
)
def test_a_job_without_an_answer_says_why(
    remote: Remote, tmp_path: Path, state: JobState, why: str, writes: bool, says: str
) -> None:
    remote.state, remote.why, remote.writes = state, why, writes
    with pytest.raises(RecordError, match=says):
        elsewhere(tmp_path)


def test_an_executor_that_refuses_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def choose(cluster: Any) -> Choice:
        raise ClusterError("no Slurm here")

    monkeypatch.setattr(doctor.executor_choice, "choose", choose)
    with pytest.raises(ClusterError, match="no Slurm here"):
        doctor.check_gpu(Console(file=StringIO()), DoctorCommand(runs=str(tmp_path)))


def test_elsewhere_all_lines_of_the_answer_are_shown(
    remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote.remote = True  # type: ignore[attr-defined]
    monkeypatch.setattr(doctor.executor_choice, "choose", lambda cluster: Choice("slurm"))
    command, out = DoctorCommand(runs=str(tmp_path), cluster=ClusterConfig(executor="auto")), StringIO()
    assert doctor.check_gpu(Console(file=out, width=200), command) == 0
    assert remote.context.site.executor == "slurm"
    shown, total = out.getvalue().splitlines()
    assert "peer access" in shown and total.startswith("H100: 1 passed")
    assert total.endswith(str(tmp_path / "gpu-check" / answer.FILE))
