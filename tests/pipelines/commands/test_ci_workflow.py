"""The workflow that `init --ci github` writes: its own steps, run in a plain shell as CI runs them."""

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
from versioned import TRAIN, work

from perfsweep.pipelines.cli import main
from perfsweep.pipelines.commands.new import WORKFLOW

OPTIONS = (
    *("workload=script", "workload.path=train.py", "measure.iterations=10", "measure.warmup_max=10"),
    *("measure.evidence_iterations=4", "measure.budget_s=1", "measure.servers=1", "measure.repeats=0"),
    "measure.timed_parity=false",
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
    with pytest.raises(SystemExit) as end:
        main(["init", "--ci", "github", "--", *OPTIONS])
    assert end.value.code == 0
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


@pytest.mark.slow
def test_a_mistake_ends_the_job_at_the_judge(root: Path, run: Step, steps: dict[str, dict[str, Any]]) -> None:
    steps["Judge"]["run"] = steps["Judge"]["run"].replace("HEAD^1", "nowhere")
    done = run("Judge")
    assert done.returncode == 2 and "nowhere is no commit of" in done.stderr
