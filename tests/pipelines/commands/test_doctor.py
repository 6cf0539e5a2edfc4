"""What perfsweep doctor says of a cluster, a profile and a GPU, and with which exit status."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from rich.console import Console

from perfsweep.pipelines.commands import doctor
from perfsweep.pipelines.config.types import ClusterConfig, DoctorCommand
from perfsweep.pipelines.execution.executor_choice import Choice
from perfsweep.pipelines.gpu_check.answer import Answer, Line, Verdict
from perfsweep.slurm.diagnosis import Diagnosis, Partition
from perfsweep.slurm.errors import ClusterError
from perfsweep.slurm.probe import Finding

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
    assert (f"{rows} MaxArraySize 1001" in text and text.endswith("a job would start")) is asks
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
    assert out.getvalue().splitlines()[0] == "no Slurm" and len(out.getvalue().splitlines()) == 3
