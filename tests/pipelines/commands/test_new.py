"""perfsweep new and init: what they write works as written, CI's workflow too, and nothing is overwritten."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from documented import ROOT
from git_repository import Planned, git, imported, state
from typed import ended
from versioned import TRAIN, work

from perfsweep.pipelines.commands.new import WORKFLOW
from perfsweep.pipelines.config import composition
from perfsweep.workloads import registry


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    return tmp_path


def test_a_new_workload_has_the_name_that_was_given_everywhere(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended("new", "graph_net") == 0
    assert capsys.readouterr().out.splitlines() == [
        "wrote graph_net.py",
        "wrote graph_net.yaml",
        "next: perfsweep check graph_net:GraphNet",
        "      perfsweep sweep workload=graph_net:GraphNet",
    ]
    texts = [(folder / f"graph_net{end}").read_text() for end in (".py", ".yaml")]
    assert not any("my_workload" in text or "MyWorkload" in text for text in texts)
    assert registry.find("graph_net:GraphNet").__name__ == "GraphNet"
    (folder / "graph_net.py").unlink()
    assert ended("new", "graph_net") == 2
    assert "graph_net.yaml is there already" in capsys.readouterr().err
    assert not (folder / "graph_net.py").exists(), "nothing half written"


def test_a_new_workload_can_be_planned_in_the_sweep_of_all_its_toggles(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended("new", "planned")
    assert ended("sweep", "workload=planned:Planned", "sweep=all", "dry_run=true", "axes={}") == 0
    out = capsys.readouterr().out
    assert "planned-all: workload planned:Planned, " in out
    assert int(out.partition("Planned, ")[2].split()[0]) >= 9


@pytest.mark.parametrize("name", ["a-b", "class", "perfsweep"])
def test_a_name_that_cannot_be_imported_is_refused(
    folder: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended("new", name) == 2
    assert "choose another" in (err := capsys.readouterr().err) or "is no name for a module" in err
    assert list(folder.iterdir()) == []


def test_init_makes_a_folder_whose_profile_and_batch_script_are_accepted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ended("init", "study") == 0
    monkeypatch.chdir(folder / "study")
    assert ended("doctor", "cluster=site", "cluster.executor=local") == 0
    assert ended("init") == 2, "it is there already"
    text = Path("sweep.sbatch").read_text()
    assert "${PERFSWEEP:-perfsweep}" in text and "sbatch sweep.sbatch" in text and "slurm/" not in text
    subprocess.run(["bash", "-n", "sweep.sbatch"], check=True)


LAUNCHER = """
defaults: [submitit_slurm]
timeout_min: 240
gpus_per_node: 2
mem_gb: 64
partition: gpu
max_num_timeout: 3
additional_parameters: {mail-type: END}
"""


def test_a_launchers_file_of_hydra_becomes_a_profile_that_says_what_it_left_out(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "slurm.yaml").write_text(LAUNCHER)
    assert ended("init", "my study", "--launcher=slurm.yaml") == 0
    assert capsys.readouterr().out.splitlines() == [
        "wrote my study/configs/cluster/my_slurm.yaml",
        "wrote my study/perfsweep.yaml",
        "left out: max_num_timeout (a pack continues as often as each try finishes more of it)",
        "next: cd 'my study'",
        "      perfsweep doctor cluster=my_slurm",
    ]
    monkeypatch.chdir(folder / "my study")
    assert "# left out: max_num_timeout" in Path("configs/cluster/my_slurm.yaml").read_text()
    cluster = composition.compose("sweep", ["cluster=my_slurm"]).cluster
    assert (cluster.executor, cluster.time_min, cluster.gpus, cluster.gpu_flag) == (
        *("slurm", 240, 2, "gpus-per-node"),
    )
    assert (cluster.memory, cluster.partition, cluster.sbatch) == ("64G", "gpu", ["--mail-type=END"])
    assert ended("init", "--launcher=../slurm.yaml") == 2, "it is there already"
    Path("perfsweep.yaml").write_text("conf: own\n")
    assert ended("init", "--launcher=../slurm.yaml") == 0
    assert Path("own/cluster/my_slurm.yaml").is_file() and Path("perfsweep.yaml").read_text() == "conf: own\n"


def test_a_launchers_file_that_slurm_would_refuse_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "mine.yaml").write_text("nodes: 0\n")
    assert ended("init", "--launcher=mine.yaml") == 2
    assert "mine.yaml: cluster.nodes=0 must be at least 1" in capsys.readouterr().err
    assert ended("init", "--launcher=none.yaml") == 2
    assert "none.yaml cannot be read" in capsys.readouterr().err


def test_a_workflow_is_written_for_what_is_to_be_judged_and_for_nothing_else(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended("init", "--ci", "github", "--", "workload=script", "workload.path=my train.py") == 0
    assert [str(path.relative_to(folder)) for path in folder.rglob("*.*") if path.is_file()] == [WORKFLOW]
    steps = yaml.safe_load((folder / WORKFLOW).read_text())["jobs"]["judge"]["steps"]
    (judge,) = (step["run"] for step in steps if step.get("name") == "Judge")
    assert "judge HEAD^1 HEAD --json -- workload=script 'workload.path=my train.py' name=" in judge
    assert "@" not in judge
    capsys.readouterr()


def test_a_workflow_is_written_over_only_where_that_was_said(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / WORKFLOW).parent.mkdir(parents=True)
    (folder / WORKFLOW).write_text("precious")
    assert ended("init", "--ci", "github") == 2
    assert (folder / WORKFLOW).read_text() == "precious"
    assert capsys.readouterr().err.endswith(f"{WORKFLOW} is there already: remove it, or say --overwrite\n")
    assert ended("init", "--ci", "github", "--overwrite") == 0
    assert "workload.path=train.py" in (folder / WORKFLOW).read_text()


OPTIONS = (
    *("workload=script", "workload.path=train.py", "measure.iterations=5", "measure.warmup_max=5"),
    *("measure.evidence_iterations=4", "measure.look=true", "measure.rounds=1", "measure.servers=1"),
    *("measure.repeats=0", "measure.timed_parity=false", "cluster.executor=inprocess"),
)
STAND_IN = """#!/bin/sh
echo "$(basename "$0") $*" >> calls
case "$*" in *--jq*) cat comments 2> /dev/null || true ;; esac
"""
"""Of pip and gh: notes its arguments; asked for comments, it knows those that the file lists."""
OWN = ROOT / ".github" / "workflows" / "ci.yml"
TEMPLATE = ROOT / "pipelines" / "commands" / "templates" / "github_workflow.yaml"


@pytest.mark.parametrize("file", [OWN, TEMPLATE], ids=lambda file: file.name)
def test_actions_are_named_by_digest_and_leave_no_token_to_the_code_that_runs(file: Path) -> None:
    workflow = yaml.safe_load(file.read_text())
    used = [step for job in workflow["jobs"].values() for step in job["steps"] if "uses" in step]
    assert used and all(re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", step["uses"]) for step in used)
    checkouts = [step for step in used if step["uses"].startswith("actions/checkout@")]
    assert checkouts and all(step["with"]["persist-credentials"] is False for step in checkouts)


@pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq")
def test_only_a_comment_of_the_job_s_own_login_is_written_over() -> None:
    (lines,) = re.findall(r"^( *ours=.*\n *ours=.*\n)", TEMPLATE.read_text(), re.MULTILINE)
    logins = ("github-actions[bot]", "stranger", "github-actions[bot]")
    bodies = ("another one", "<!-- perfsweep --> mine", "<!-- perfsweep --> ours")
    comments = [
        {"id": number, "user": {"login": login}, "body": body}
        for number, (login, body) in enumerate(zip(logins, bodies, strict=True))
    ]
    done = subprocess.run(
        ["bash", "-c", f'{lines}jq "$ours"'],
        input=json.dumps(comments),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["2"]


Step = Callable[[str], subprocess.CompletedProcess[str]]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pull request that changes results, merged into its base, as CI checks it out."""
    root = imported(
        tmp_path / "repo",
        [
            Planned(
                "base", {"train.py": TRAIN, "work.py": work(), ".gitignore": "perfsweep*\ncalls\ncomments\n"}
            ),
            Planned("change", {"work.py": work(scale=1.001)}, ("base",), "topic"),
            Planned("merged", {"work.py": work(scale=1.001)}, ("base", "change")),
        ],
    )
    monkeypatch.chdir(root)
    assert ended("init", "--ci", "github", "--", *OPTIONS) == 0
    return root


@pytest.fixture
def steps(root: Path) -> dict[str, dict[str, Any]]:
    """The steps that run something, by name."""
    workflow = yaml.safe_load((root / WORKFLOW).read_text())
    return {step["name"]: step for step in workflow["jobs"]["judge"]["steps"] if "run" in step}


@pytest.fixture
def run(root: Path, steps: dict[str, dict[str, Any]], tmp_path: Path) -> Step:
    """Run a step as GitHub's runner does for `shell: bash`."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("pip", "gh"):
        (tools / name).write_text(STAND_IN)
        (tools / name).chmod(0o755)
    (tools / "perfsweep").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m perfsweep.pipelines.cli "$@"\n')
    (tools / "perfsweep").chmod(0o755)
    env = {
        **os.environ,
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "GITHUB_REPOSITORY": "someone/something",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        "PULL_REQUEST": "12",
        "GH_TOKEN": "t",
    }

    def run(name: str) -> subprocess.CompletedProcess[str]:
        script = tmp_path / "step.sh"
        script.write_text(steps[name]["run"])
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
        return subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=False)

    return run


@pytest.mark.slow
def test_the_steps_judge_comment_keep_the_times_and_fail_where_results_changed(
    root: Path, run: Step, steps: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    before = state(root)
    ended = {name: run(name) for name in steps}
    failing = {name: done.stderr for name, done in ended.items() if done.returncode}
    assert list(failing) == ["Fail where it became slower, or changed results"], failing
    assert state(root) == before

    comment = (root / "perfsweep.md").read_text()
    assert comment == (tmp_path / "summary.md").read_text()
    assert comment.startswith("<!-- perfsweep -->\n\n### perfsweep: different results")
    assert git(root, "rev-parse", "base")[:10] in comment and "Its time does not count." in comment
    assert json.loads((root / "perfsweep.json").read_text())["base"]["name"] == "HEAD^1"
    assert (root / "perfsweep-baseline.json").stat().st_size
    assert (root / "runs/pull-request/report.html").exists()

    (root / "comments").write_text("77\n")
    assert run("Post the comment").returncode == 0
    calls = (root / "calls").read_text().splitlines()
    assert calls[0].startswith("pip install perfsweep-")
    assert (
        "gh api repos/someone/something/issues/12/comments --method POST --field body=@perfsweep.md" in calls
    )
    assert calls[-1].startswith("gh api repos/someone/something/issues/comments/77 --method PATCH")
