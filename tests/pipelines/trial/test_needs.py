"""What a trial imports: torch, numpy, the standard library and few packages of ours; and what is shared."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from environments import needed

from perfsweep.pipelines.trial import shared_imports

ROOT = Path(__file__).parents[3]

# As in an environment that has nothing else: whatever asks for another package does not find it.
IMPORT = """
import importlib, json, sys
from pathlib import Path

class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

absent = set(json.loads(sys.argv[1]))
sys.meta_path.insert(0, Nothing())
found = {}
for name in sys.argv[2:]:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        found[name] = error.name
print(json.dumps(found))
"""


def told(program: str, *words: str) -> Any:
    """What a program of its own prints as JSON."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", program, *words], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_module_of_a_trial_imports_without_other_packages() -> None:
    there = {*needed(), "perfsweep"}
    absent = [top for top, owners in packages_distributions().items() if not there & set(owners)]
    assert {"pydantic", "omegaconf", "greenlet", "wandb", "pynvml"} < set(absent)
    files = sorted((ROOT / "pipelines/trial").rglob("[!_]*.py"))
    trial = [".".join(("perfsweep", *file.relative_to(ROOT).with_suffix("").parts)) for file in files]
    assert "perfsweep.pipelines.trial.process" in trial and "perfsweep.pipelines.trial.timing.clock" in trial
    looked = ["perfsweep.pipelines.plan.version_look", "perfsweep.workloads.command.workload"]
    planted = ["perfsweep.pipelines.store.schema", "perfsweep.pipelines.config.validation"]
    assert told(IMPORT, json.dumps(absent), *trial, *looked, *planted) == {
        "perfsweep.pipelines.store.schema": "pydantic",
        "perfsweep.pipelines.config.validation": "omegaconf",
    }


LOADED = """
import importlib, json, sys
importlib.import_module(sys.argv[1])
ours = [name for name in sys.modules if name.startswith("perfsweep.")]
from perfsweep.pipelines.trial.compiles import CompileCounting
with CompileCounting() as compiling:
    assert compiling.poll() == 0
assert compiling.result()["compiled_graphs"] == 0
assert "torch._dynamo" not in sys.modules, "polling imports no compiler"
print(json.dumps(ours))
"""


BELOW = ("locks", "store", "units")


@pytest.mark.parametrize(
    ("module", "packages"),
    [
        ("process", {"checksums", "fields", *(f"pipelines.{name}" for name in BELOW)}),
        ("fork_server", {"fields", "pipelines.own_code", "pipelines.store"}),
    ],
)
def test_a_measured_process_loads_few_of_our_packages_and_no_compiler(
    module: str, packages: set[str]
) -> None:
    ours = {name.removeprefix("perfsweep.") for name in told(LOADED, f"perfsweep.pipelines.trial.{module}")}
    depths = {name: 2 if name.startswith("pipelines.") else 1 for name in ours}
    found = {".".join(name.split(".")[:depth]) for name, depth in depths.items()}
    assert found == packages | {"workloads", "pipelines", "pipelines.trial"}


HEAVY = """
import json, sys
from perfsweep.pipelines.parity import deviations
from perfsweep.pipelines.trial.machine import environment
print(json.dumps(sorted({"torch", "scipy", "pynvml"} & set(sys.modules))))
"""


def test_what_plans_and_judges_imports_no_torch() -> None:
    assert told(HEAVY) == []


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder of installed modules: one that does nothing, and one that starts a thread."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "quiet_library.py").touch()
    (folder / "threaded_library.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    return folder


def names_noted(folder: Path, *replaced: str) -> str:
    shared_imports.note(folder, {"json"}, replaced)
    return Path(shared_imports.noted(folder)).read_text()


def test_a_trial_notes_the_installed_modules_it_imported_and_none_of_a_users(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a_users_module.py").touch()
    for folder in (installed, tmp_path):
        monkeypatch.syspath_prepend(folder)
    for name in ("quiet_library", "a_users_module"):
        monkeypatch.delitem(sys.modules, name, raising=False)
        __import__(name)
    noted = names_noted(tmp_path)
    assert all(f'"{name}"' in noted for name in ("quiet_library", "torch.nn", "random"))
    assert all(f'"{name}"' not in noted for name in ("json", "a_users_module", shared_imports.__name__))


def test_what_is_imported_after_a_package_that_a_level_replaces_something_in_is_not_shared(
    tmp_path: Path,
) -> None:
    noted = names_noted(tmp_path, "torch.nn.functional")
    assert '"random"' in noted and '"torch' not in noted


@pytest.mark.parametrize(
    ("file", "shared"), [("random.py", False), ("random/a.py", False), ("work.py", True)]
)
def test_what_a_version_of_the_code_has_under_the_same_name_is_not_shared(
    tmp_path: Path, file: str, shared: bool
) -> None:
    (tmp_path / "imports.json").write_text('["random", "json"]')
    copy = tmp_path / "version" / file
    copy.parent.mkdir(parents=True)
    copy.touch()
    assert bool(shared_imports.noted(tmp_path, [tmp_path / "version"])) is shared


@pytest.mark.parametrize("text", [None, "{", '{"json": 1}', "[1]"])
def test_a_file_of_imports_that_is_missing_or_damaged_shares_none(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "imports.json").write_text(text)
    assert shared_imports.noted(tmp_path) == ""
