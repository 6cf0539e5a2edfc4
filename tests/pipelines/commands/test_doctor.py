"""What perfsweep doctor says of a cluster, a profile and a GPU, and with which exit status."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from io import StringIO
from pathlib import Path
from typing import Any, ClassVar

import pytest
from omegaconf import OmegaConf
from rich.console import Console

from perfsweep.pipelines.commands import doctor
from perfsweep.pipelines.config.types import ClusterConfig, DoctorCommand
from perfsweep.pipelines.execution.executor_choice import Choice
from perfsweep.pipelines.gpu_check import answer
from perfsweep.pipelines.gpu_check.answer import Answer, Line, Verdict
from perfsweep.slurm import jobs
from perfsweep.slurm.diagnosis import Diagnosis, Partition
from perfsweep.slurm.errors import ClusterError
from perfsweep.slurm.jobs import Executor, ExecutorContext, Job, JobState
from perfsweep.slurm.probe import Finding
from perfsweep.workloads.errors import RecordError

PARTITION = Partition("gpu", True, True, "1-00:00:00", "4", "idle", "64", "500000", "gpu:8", "hbm")
SMALL = Partition("small", False, False, "1:00", "2", "idle", "8", "9000", "", "cpu")
SITE = Diagnosis("24.05", {"MaxArraySize": "1001"}, (PARTITION, SMALL), True, "a job would start", None, ())
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


def test_what_would_be_refused_is_not_probed(said: Said) -> None:
    status, text = said(changed(refused="no such account", warnings=("time limit",)), probe=True)
    assert status == 1
    assert "beware: time limit refused: no such account" in text
    assert "a job would start" not in text and "waiting for a node" not in text


def test_a_cluster_that_does_not_answer_is_one_line(said: Said) -> None:
    status, text = said(ClusterError("no controller\nat all"))
    assert (status, text) == (1, "Slurm does not answer: no controller")


@pytest.mark.parametrize(("executor", "asks"), [("local", False), ("auto", True)])
def test_only_what_may_run_on_slurm_is_asked_about(said: Said, executor: str, asks: bool) -> None:
    status, text = said(executor=executor)
    assert status == 0
    assert text.startswith("Slurm 24.05; accounting (sacct) works") is asks
    rows = "gpu (default) 1-00:00:00 4 idle 64 500000 MB gpu:8 hbm small 1:00 2 down 8 9000 MB cpu"
    ends = "this profile asks for 1 GPU, 4 cores, at most 60 min in partition gpu a job would start"
    assert (f"{rows} MaxArraySize 1001 {ends}" in text) is asks
    assert (f"cluster.executor={executor}: packs run on this machine" in text) is not asks


@pytest.mark.parametrize(
    ("findings", "status"),
    [
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


@pytest.mark.parametrize(("verdict", "status"), [(Verdict.PASS, 0), (Verdict.FAIL, 1)])
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
    line_ = f"3 memory          peer access              {verdict.value:<11} [two] GPUs"
    counts = "1 passed, 0 failed" if verdict is Verdict.PASS else "0 passed, 1 failed"
    file = tmp_path / "runs/gpu-check/gpu-check.json"
    assert out.getvalue() == f"no Slurm\n{line_}\nH100: {counts}, 0 need a GPU; 62 s: {file}\n"


class Elsewhere(Executor):
    """A Slurm whose only job is there already where `alive`, and ends as a test says."""

    remote: ClassVar[bool] = True
    alive: ClassVar[bool] = False
    ends: ClassVar[JobState] = JobState.ENDED
    leaves: ClassVar[Answer | None] = None
    jobs: ClassVar[list[tuple[Job, bool]]] = []

    def __init__(self, context: ExecutorContext) -> None:
        self.context = context

    @classmethod
    def of(cls, context: ExecutorContext) -> Elsewhere:
        return cls(context)

    @classmethod
    def submitted(cls, folder: Path) -> dict[str, bool]:
        return {"gpu-check": cls.alive}

    def submit(self, jobs: Iterable[Job]) -> None:
        file = self.context.folder / answer.FILE
        self.jobs.extend((job, file.exists()) for job in jobs)
        self.context.say(f"job of {self.context.name} on {self.context.site.gpus} GPUs")
        if self.leaves:
            answer.write(self.context.folder, self.leaves)

    def counts(self) -> str:
        return "1 runs"

    def poll(self) -> dict[str, JobState]:
        return {"gpu-check": self.ends}

    def cancel(self, names: Collection[str] | None = None) -> int:
        return 0

    def notes(self) -> dict[str, str]:
        return {} if self.ends is JobState.ENDED else {"gpu-check": "memory ran out"}


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., tuple[int, list[str]]]:
    """Checks a GPU by a job; exit status, and what was printed."""
    for name in ("alive", "ends", "leaves"):
        monkeypatch.setattr(Elsewhere, name, getattr(Elsewhere, name))
    monkeypatch.setattr(Elsewhere, "jobs", [])
    monkeypatch.setattr(jobs, "EXECUTORS", {"slurm": f"{__name__}:Elsewhere"})
    monkeypatch.setattr(doctor.executor_choice, "choose", lambda cluster: Choice("slurm"))
    monkeypatch.setattr(doctor.code_snapshot, "take", lambda folder: folder / "c0de")
    monkeypatch.setenv("PYTHONPATH", "/user")
    place = tmp_path / "gpu-check"
    place.mkdir()
    (place / answer.FILE).write_text("of an earlier job")

    def ask() -> tuple[int, list[str]]:
        out = StringIO()
        cluster = ClusterConfig(executor="auto", gpus=2)
        command = DoctorCommand(stages=[2, 3], runs=str(tmp_path), cluster=cluster)
        return doctor.check_gpu(Console(file=out, width=40), command), out.getvalue().splitlines()

    return ask


@pytest.mark.parametrize("alive", [False, True])
def test_elsewhere_a_job_checks_and_its_lines_are_shown_and_one_that_lives_is_followed(
    alive: bool, elsewhere: Any, tmp_path: Path
) -> None:
    Elsewhere.alive, Elsewhere.leaves = alive, found(Verdict.PASS, Verdict.NEEDS_GPU, name="")
    status, said_ = elsewhere()
    assert status == 0
    place = tmp_path / "gpu-check"
    assert said_ == [
        *("job of gpu-check on 2 GPUs", "1 runs"),
        *(
            f"3 memory          peer access              {verdict:<11} [two] GPUs"
            for verdict in ("PASS", "needs a GPU")
        ),
        f"cuda: 1 passed, 0 failed, 1 need a GPU; 62 s: {place / answer.FILE}",
    ]
    ((job, kept),) = Elsewhere.jobs
    assert kept is alive, "the answer of an earlier job goes before one is submitted"
    assert job.command[1:] == ("-m", "perfsweep.pipelines.gpu_check.stages", str(place), "2", "3")
    assert (job.name, job.log) == ("gpu-check", place / "log.txt")
    assert (job.env["PYTHONPATH"], job.env["PYTHONSAFEPATH"]) == (f"{place / 'code/c0de'}:/user", "1")


@pytest.mark.parametrize(
    ("ends", "leaves", "why"), [(JobState.ENDED, False, "ended"), (JobState.FAILED, True, "memory ran out")]
)
def test_a_job_that_left_no_answer_is_named_with_its_log(
    ends: JobState, leaves: bool, why: str, elsewhere: Any, tmp_path: Path
) -> None:
    Elsewhere.ends, Elsewhere.leaves = ends, found(Verdict.PASS) if leaves else None
    with pytest.raises(RecordError) as refused:
        elsewhere()
    log = tmp_path / "gpu-check/log.txt"
    assert str(refused.value) == f"the job left no answer: {why}; its log is {log}"
