"""`perfsweep doctor`: what a node is like, one line each, and what is tried without asking one."""

from __future__ import annotations

import sys
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from bench import Bench
from stand_ins import calls, program

from perfsweep.slurm import diagnosis, probe_body
from perfsweep.slurm.errors import ClusterError
from perfsweep.slurm.probe import SUBJECTS, Finding, Probed, judged, probe
from perfsweep.slurm.site import SiteProfile

ENV = {"PATH": "/usr/bin:/bin"}
FACTS = {
    "host": "n1",
    "time": 101.0,
    "python": "3.12.1",
    "executable": "/opt/python",
    "missing": [],
    "visible": ["0"],
    "torch": "2.13.0 1",
    "scratch": {"path": "/scratch/7", "free_gib": 12.3},
    "network": "",
}
FINE = Probed(FACTS, submitted=100.0, seen=102.0)
SITE = SiteProfile(gpus=1, scratch="/scratch", network=True)


def failures(site: SiteProfile, **changes: object) -> list[Finding]:
    found = judged(site, Path("runs"), replace(FINE, facts=FACTS | changes))
    return [finding for finding in found if not finding.fine]


@pytest.mark.parametrize(
    ("changes", "subject", "words"),
    [
        ({"python": "3.9.2"}, "interpreter", "perfsweep needs 3.11: name another in cluster.python"),
        ({"missing": ["polars"]}, "interpreter", "cannot import polars; install perfsweep there too"),
        ({"visible": []}, "GPU", "asks for 1, and the job sees 0; choose another cluster.gpu_flag"),
        ({"torch": "2.13.0+cpu 0"}, "GPU", "Slurm gave 1, and torch sees 0; install torch for CUDA"),
        ({"scratch": {}}, "scratch", "/scratch cannot be written (it was not made); name another folder"),
        ({"network": "timed out"}, "outbound network", "not reached (timed out); set the site's proxy"),
        ({"time": 40.0}, "clock", "60 s behind this machine's; ask the site"),
        ({"time": 140.0}, "clock", "38 s ahead of this machine's; ask the site"),
    ],
)
def test_each_thing_that_is_otherwise_fails_with_its_remedy(
    changes: dict[str, object], subject: str, words: str
) -> None:
    (failed,) = failures(SITE, **changes)
    assert failed.subject == subject and words in str(failed)


def test_of_two_mig_slices_a_process_uses_one() -> None:
    site = replace(SITE, gpus=2)
    (gpu,) = failures(site, visible=["MIG-1", "MIG-2"], torch="2.13.0 1")
    assert str(gpu) == (
        "FAIL  GPU: Slurm gave 2, and torch sees 1; one process uses one MIG slice: ask for whole GPUs, or"
        " for one slice (cluster.gpus=1)"
    )


def test_a_torch_that_cannot_be_imported_is_the_interpreters_fault_and_sees_no_gpu() -> None:
    interpreter, gpu = failures(SITE, torch="ImportError: no libcuda")
    assert str(interpreter).endswith("(/opt/python) on n1: ImportError: no libcuda; fix torch there")
    assert gpu.text == "Slurm gave 1, and torch sees none"


def told(probed: Probed, **fields: object) -> list[str]:
    return [str(finding) for finding in judged(replace(SITE, **fields), Path("runs"), probed)]  # type: ignore[arg-type]


UNREACHED = [f"----  {name}: not reached" for name in SUBJECTS]


def test_where_a_node_wrote_nothing_the_folder_is_to_blame() -> None:
    first = "FAIL  folder: no node wrote anything into runs (it vanished); choose a folder that nodes share"
    found = told(Probed(None, "it vanished"))
    assert found[0].startswith(first)
    assert found[1:] == UNREACHED[1:]


def test_a_set_up_line_that_failed_ends_the_probe_there() -> None:
    note = "cluster.setup line 2 ended with status 1: module load x"
    found = told(Probed(None, note, ""), setup=["a", "b"])
    assert found[:2] == [
        "PASS  folder: a node wrote into runs",
        f"FAIL  set-up lines: {note}; fix it in cluster.setup",
    ]
    assert found[2:] == UNREACHED[2:]


def test_scratch_that_cannot_be_made_is_no_fault_of_the_set_up_lines() -> None:
    note = "cluster.setup for cluster.scratch ended with status 1: mkdir"
    found = told(Probed(None, note, ""), setup=["a"])
    assert found[1] == "PASS  set-up lines: 1 of them ended well"
    assert found[2:] == [
        *UNREACHED[2:4],
        f"FAIL  scratch: {note}; name a folder that can be made there",
        *UNREACHED[5:],
    ]


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("/x.sh: python: not found\nsrun: error: n1: task 0: Exited with exit code 127\n", "/x.sh: python:"),
        ("srun: Job step aborted\nslurmstepd: Terminating job step 7\n", "it ended and gave no reason"),
    ],
)
def test_an_interpreter_that_did_not_start_is_told_with_the_last_line_that_says_why(
    output: str, words: str
) -> None:
    found = told(Probed(None, "it ended and gave no reason", output))
    assert found[2].startswith(f"FAIL  interpreter: {words}")
    assert found[2].endswith("; say in cluster.python what starts Python there")
    assert found[3:] == UNREACHED[3:]


ANSWERED = """for script; do :; done
cp "$script" {folder}/script; token=$(grep -o 'perfsweep:[0-9a-f]*' "$script" | head -1)
echo "62|0|62|{state}|None|n1|$token|demo|N/A" > {folder}/rows; echo Submitted batch job 62"""


def probed(stand_in: Path, tmp_path: Path, state: str) -> list[Finding]:
    program(stand_in, "sbatch", ANSWERED.format(state=state, folder=stand_in))
    program(stand_in, "squeue", f"cat {stand_in}/rows")
    site = replace(SITE, poll_min_s=0.01, poll_max_s=0.01, fs_delay_s=0.0)
    return probe(site, tmp_path / "runs", ("json",), "http://127.0.0.1:9", lambda text: None)


def test_a_probe_that_fails_is_judged_and_its_folder_is_removed(
    stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfsweep.slurm.probe.POLL_S", 0.0)
    found = probed(stand_in, tmp_path, "NODE_FAIL")
    assert "no node wrote anything into" in found[0].text
    assert "(node failed by Slurm's word (NODE_FAIL))" in found[0].text, "it is tried once"
    assert list((tmp_path / "runs").iterdir()) == []
    assert calls(stand_in, "sbatch") == 1
    options = {*(stand_in / "script").read_text().splitlines()}
    assert options >= {f"#SBATCH --{word}" for word in ("time=3", "no-requeue", "signal=USR2@0")}


def test_a_probe_that_can_never_start_is_taken_out_of_the_queue(stand_in: Path, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="the probe can never start: special_exit: release it"):
        probed(stand_in, tmp_path, "SPECIAL_EXIT")
    assert (stand_in / "scancel.calls").read_text() == "62\n"
    assert list((tmp_path / "runs").iterdir()) == []


def test_set_up_lines_that_hang_here_are_given_up_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnosis, "TIMEOUT_S", 0.05)
    (tmp_path / "profile.sh").write_text("exec sleep 60")
    (text,) = diagnosis.rehearse(SiteProfile(setup=[f"source {tmp_path}/profile.sh"]), ENV)
    assert text == "cluster.setup or cluster.python did not end within 0.05 s on this machine"


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs").touch()
    with pytest.raises(ClusterError, match=r"runs cannot be written \(File exists\): choose another folder"):
        probe(SITE, tmp_path / "runs", (), "", lambda text: None)


@pytest.mark.parametrize(
    ("network", "why", "words"),
    [
        (None, "refused", "none (refused): tracking=offline needs none"),
        (False, "", "the W&B server answers, though the profile says that there is none"),
    ],
)
def test_a_network_that_nobody_counts_on_is_no_failure(network: bool | None, why: str, words: str) -> None:
    probed = replace(FINE, facts=FACTS | {"network": why})
    found = judged(replace(SITE, network=network), Path("runs"), probed)
    assert [(f.fine, f.text) for f in found if f.subject == "outbound network"] == [(True, words)]


@pytest.mark.parametrize(
    ("setup", "python", "words"),
    [
        (["export A=1", "source /nowhere/profile.sh"], None, ["cluster.setup line 2 ended with status 1"]),
        (["export A=1"], "/nowhere/python", ["cluster.python=/nowhere/python does not start"]),
        ([], "apptainer exec x.sif python", ["apptainer is not on this machine; probe=true asks a node"]),
        (["export A=1"], "python3", []),
        (["cp -r /data $SLURM_TMPDIR"], "/nowhere/python", []),
    ],
)
def test_without_a_probe_lines_that_only_change_the_shell_are_tried_here(
    setup: list[str], python: str | None, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = diagnosis.rehearse(SiteProfile(setup=setup, python=python), ENV)
    assert len(found) == len(words), found
    assert all(word in text for word, text in zip(words, found, strict=True)), found
    assert not list(tmp_path.iterdir())


def doctor(bench: Bench, *words: str):
    conf = f"cluster.slurm_conf={bench.cluster.settings.conf}"
    quick = ("cluster.poll_min_s=0.2", "cluster.poll_max_s=0.5", "cluster.fs_delay_s=1", "cluster.sbatch=[]")
    return bench.perfsweep("doctor", "cluster=dev", conf, *quick, *words)


@pytest.mark.slow
def test_a_probe_of_the_development_cluster_passes_and_leaves_nothing(bench: Bench) -> None:
    done = doctor(
        bench, "probe=true", f"cluster.scratch={bench.folder / 'node'}", "cluster.setup=['export A=1']"
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith(("PASS", "FAIL", "----"))]
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split(":")[0] for line in lines] == [
        f"PASS  {name}"
        for name in ("folder", "set-up lines", "interpreter", "GPU", "scratch", "outbound network", "clock")
    ]
    assert "1 of them ended well" in lines[1]
    assert not list((bench.folder / "runs").iterdir())


SILENT = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is asked by a proxy, and torch is not imported."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "PERFSWEEP_SCRATCH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(probe_body, "COUNT_GPUS", "print('warning'); print('2.13.0', 1)")


def test_a_node_answers_every_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,,2")
    found = probe_body.answers({"modules": ["json", "no_such_module", "sys"], "url": SILENT})
    assert found["missing"] == ["no_such_module"]
    assert found["visible"] == ["0", "2"]
    assert (found["torch"], found["scratch"]) == ("2.13.0 1", {})
    assert found["executable"] == sys.executable
    assert "refused" in found["network"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert probe_body.answers({"modules": [], "url": SILENT})["visible"] == []


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise SystemExit('no torch here')", "no torch here"),
        ("import time; time.sleep(60)", "importing torch took longer than 0.2 s"),
    ],
)
def test_a_torch_that_cannot_be_imported_says_why(
    monkeypatch: pytest.MonkeyPatch, code: str, said: str
) -> None:
    monkeypatch.setattr(probe_body, "COUNT_GPUS", code)
    if "sleep" in code:
        monkeypatch.setattr(probe_body, "TORCH_S", 0.2)
    assert probe_body.torch_sees() == said


def test_scratch_is_written_and_its_space_is_told_in_gib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERFSWEEP_SCRATCH", str(tmp_path))
    monkeypatch.setattr(
        probe_body.shutil, "disk_usage", lambda place: type("Usage", (), {"free": 5 * 2**29})()
    )
    assert probe_body.scratch() == {"path": str(tmp_path), "free_gib": 2.5}
    assert not list(tmp_path.iterdir())
    monkeypatch.setenv("PERFSWEEP_SCRATCH", str(tmp_path / "nowhere"))
    assert probe_body.scratch() == {"path": str(tmp_path / "nowhere"), "error": "No such file or directory"}


class Forbids(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(403 if self.path == "/no" else 200)

    def log_message(self, *args: object) -> None:
        return


def test_a_server_that_answers_anything_was_reached() -> None:
    with HTTPServer(("127.0.0.1", 0), Forbids) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        assert [probe_body.reached(address + path) for path in ("/", "/no")] == ["", ""]
        server.shutdown()
    assert probe_body.reached("nonsense") == "unknown url type: 'nonsense'"
