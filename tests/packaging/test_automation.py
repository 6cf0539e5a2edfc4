"""What runs on a commit or a pull request names targets and versions that are there, and so do the pages."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.y*ml"))
HOOKS = ROOT / ".pre-commit-config.yaml"


def pinned(package: str) -> str:
    """The version in constraints.txt."""
    found = re.search(rf"^{package}==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert found
    return found[1]


def scripts(workflow: dict[str, Any]) -> list[str]:
    """What the steps of all jobs run."""
    return [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]


def targets(text: str) -> set[str]:
    """Targets of a makefile's rules, with the names of variables left as they are written."""
    return {name for rule in re.findall(r"^([\w -]+):(?!=)", text, re.MULTILINE) for name in rule.split()}


def hooks(repository: str) -> tuple[str, list[str]]:
    """The revision of a repository of hooks, and their ids."""
    found = [one for one in yaml.safe_load(HOOKS.read_text())["repos"] if one["repo"].endswith(repository)]
    assert len(found) == 1
    return found[0].get("rev", ""), [hook["id"] for hook in found[0]["hooks"]]


def test_the_change_log_names_the_version_of_the_project() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    released = re.findall(r"^## (\d\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert released[0] == version


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda workflow: workflow.name)
def test_a_workflow_makes_only_what_the_makefile_has(workflow: Path) -> None:
    ran = scripts(yaml.safe_load(workflow.read_text()))
    made = {name for text in ran for name in re.findall(r"\bmake ([\w-]+)", text)}
    assert ran and made
    assert made <= targets((ROOT / "Makefile").read_text())


def test_pull_requests_are_linted_tested_on_the_oldest_and_newest_python_and_packaged() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    assert "pull_request" in workflow[True]  # YAML reads a bare on as true
    assert {"lint", "test", "wheel"} <= set(workflow["jobs"])
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"] == ["3.11", "3.13"]
    together = "\n".join(scripts(workflow))
    for command in ("make lint", "make test\n", "pip wheel", "perfsweep --version", "perfsweep list"):
        assert command in f"{together}\n"


def test_commits_are_checked_by_the_ruff_that_lint_runs() -> None:
    revision, names = hooks("ruff-pre-commit")
    assert revision == f"v{pinned('ruff')}"
    assert names == ["ruff-check", "ruff-format"]


def test_commits_are_held_to_the_layers_and_to_whole_files() -> None:
    assert hooks("local")[1] == ["import-linter"]
    assert {"end-of-file-fixer", "check-yaml"} <= set(hooks("pre-commit-hooks")[1])
