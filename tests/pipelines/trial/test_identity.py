"""What an arm's identity covers: the trial folder, the contract, the workload and its imports; no more."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from perfsweep.pipelines.trial.identity import arm_id

ROOT = Path(__file__).parents[3]
OURS = "perfsweep/pipelines"

STUDY = {
    "study/__init__.py": "",
    "study/workload.py": """from study.maths import one
from toys.odd import Endless
from perfsweep.workloads import native

class Study(Endless):
    each = one
""",
    "study/maths.py": "one = 1.0\n",
    "toys/odd.py": (ROOT / "tests/support/toys/odd.py").read_text(),
    "toys/__init__.py": "",
}

IDENTIFY = """
import json, sys
from pathlib import Path
from perfsweep.pipelines.trial.identity import arm_id, code_digest
from perfsweep.workloads import registry

cls = registry.find("study.workload:Study")

def identity():
    return arm_id("study", cls.Config(), {"units": "one"}, code_digest(cls))

before, moved = identity(), {}
for line in sys.stdin.read().splitlines():
    file = Path(line)
    text = file.read_bytes()
    file.write_bytes(text + b"# another line\\n")
    moved[line] = identity() != before
    file.write_bytes(text)
assert identity() == before
print(json.dumps(moved))
"""


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bool]:
    """For files of a copy of the sources: whether another line in it gives an arm another identity."""
    copy = tmp_path_factory.mktemp("sources")
    package = copy / "perfsweep"
    shutil.copytree(ROOT / "src/perfsweep", package, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in STUDY.items():
        (copy / name).parent.mkdir(exist_ok=True)
        (copy / name).write_text(text)
    packages = [one for one in (package / "pipelines").iterdir() if one.is_dir()]
    files = [sorted(one.glob("[a-z]*.py"))[0] for one in packages if list(one.glob("[a-z]*.py"))]
    files += [*(package / "pipelines" / "trial").rglob("*.py"), *(package / "workloads").glob("*.py")]
    files += [package / "slurm" / "jobs.py", package / "__init__.py"]
    names = [str(file.relative_to(copy)) for file in dict.fromkeys(files)] + list(STUDY)
    env = {**os.environ, "PYTHONPATH": str(copy), "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", IDENTIFY],
        input="\n".join(names),
        cwd=copy,
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_line_in_any_file_of_the_measured_process_changes_every_arm(moved: dict[str, bool]) -> None:
    trial = {name: changes for name, changes in moved.items() if name.startswith(f"{OURS}/trial/")}
    assert len(trial) == len(list((ROOT / "pipelines" / "trial").rglob("*.py")))
    assert set(trial.values()) == {True}


def test_a_line_of_the_contract_of_the_workload_or_of_what_it_imports_changes_its_arms(
    moved: dict[str, bool],
) -> None:
    for name in ("api", "toggles", "errors", "native"):
        assert moved[f"perfsweep/workloads/{name}.py"], name
    for name in STUDY:
        assert moved[name], name


def test_a_comment_anywhere_else_in_the_pipelines_changes_no_arm(moved: dict[str, bool]) -> None:
    others = {name for name in moved if name.startswith("perfsweep/") and "/workloads/" not in name}
    others = {name for name in others if not name.startswith(f"{OURS}/trial/")}
    assert any(name.startswith(f"{OURS}/statistics/") for name in others)
    assert "perfsweep/__init__.py" in others
    assert not [name for name in others if moved[name]]


@dataclass
class Config:
    """Two fields."""

    size: int = 1
    place: Path = Path("a")


def test_an_arm_is_the_same_in_whatever_order_its_levels_stand_and_another_with_any_part() -> None:
    levels = {"amp": "off", "slab": 1}
    first = arm_id("study", Config(), levels, "c0de")
    assert re.fullmatch(r"[0-9a-f]{16}", first)
    assert arm_id("study", Config(), {"slab": 1, "amp": "off"}, "c0de") == first
    others = [
        arm_id("other", Config(), levels, "c0de"),
        arm_id("study", Config(2), levels, "c0de"),
        arm_id("study", Config(place=Path("b")), levels, "c0de"),
        arm_id("study", Config(), {**levels, "slab": 2}, "c0de"),
        arm_id("study", Config(), levels, "other"),
    ]
    assert len({first, *others}) == 6
