"""Which files a script consists of."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.script.config import LOADER, MARKS, OPTIMIZER, ScriptConfig
from perfsweep.workloads.script.sources import Sources, refuse_no_python


def write(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        file = folder / f"{name.replace('__', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def found(folder: Path, path: str = "train.py") -> set[str]:
    sources = Sources(ScriptConfig(path, folder=str(folder)))
    return {file.relative_to(folder).as_posix() for file in sources.files}


def test_modules_beside_it_belong_to_it_directly_and_through_others(tmp_path: Path) -> None:
    write(tmp_path, train="import torch, model", model="from parts import norm", parts__norm="", other="")
    assert found(tmp_path) == {"train.py", "model.py", "parts/norm.py"}


def test_relative_imports_in_its_packages_are_followed(tmp_path: Path) -> None:
    write(tmp_path, train="import net.a", net__a="from .b import x\nfrom . import c", net__b="", net__c="")
    (tmp_path / "net/__init__.py").write_text("")
    assert found(tmp_path) == {"train.py", "net/__init__.py", "net/a.py", "net/b.py", "net/c.py"}


@pytest.mark.parametrize(
    "line",
    [
        "sys.path.append(str(Path(__file__).parent.parent / 'library'))",
        "sys.path.append(os.path.join(os.path.dirname(__file__), '..', 'library'))",
    ],
)
def test_folders_that_the_script_adds_to_the_import_path_are_looked_into(tmp_path: Path, line: str) -> None:
    write(
        tmp_path,
        scripts__train=f"import sys\n{line}\nimport mine_of_the_library",
        library__mine_of_the_library="",
    )
    assert found(tmp_path, "scripts/train.py") == {"scripts/train.py", "library/mine_of_the_library.py"}


def test_a_package_on_the_import_path_outside_site_packages_belongs_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(
        tmp_path,
        scripts__train="import json, numpy\nfrom edited_pkg import part",
        editable__edited_pkg__part="",
    )
    (tmp_path / "editable/edited_pkg/__init__.py").write_text("from . import part")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "editable")])
    assert found(tmp_path, "scripts/train.py") == {
        "scripts/train.py",
        "editable/edited_pkg/__init__.py",
        "editable/edited_pkg/part.py",
    }


def test_installed_packages_and_perfsweep_itself_do_not(tmp_path: Path) -> None:
    write(tmp_path, train="import torch, pytest, perfsweep, perfsweep.workloads.api")
    assert found(tmp_path) == {"train.py"}


def test_an_iteration_ends_at_the_scripts_own_marks_where_it_has_some(tmp_path: Path) -> None:
    write(tmp_path, train="import model", model="import perfsweep")
    sources = Sources(ScriptConfig("train.py", folder=str(tmp_path)))
    assert sources.iteration("auto") == MARKS
    assert sources.iteration(LOADER) == LOADER
    write(tmp_path, model="import torch")
    assert Sources(ScriptConfig("train.py", folder=str(tmp_path))).iteration("auto") == OPTIMIZER


@pytest.mark.parametrize(
    ("line", "sets"),
    [
        ("os.environ['OMP_NUM_THREADS'] = '1'", True),
        ("os.environ.setdefault('TOKENIZERS_PARALLELISM', 'false')", True),
        ("rank = int(os.environ['RANK'])", False),
        ("if os.environ['LOCAL_RANK'] == '0': pass", False),
    ],
)
def test_only_a_script_that_sets_variables_needs_a_process_from_exec(
    tmp_path: Path, line: str, sets: bool
) -> None:
    write(tmp_path, train=f"import os\n{line}\nimport torch\n")
    config = ScriptConfig("train.py", folder=str(tmp_path))
    assert Sources(config).touches_environment is sets


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"x = 1\0", r"^train\.py is no Python: source code string cannot contain null bytes$"),
        (b"x = 1\nreturn x", r"^train\.py line 2 is no Python: 'return' outside function$"),
        (b"x = " + b"-" * 100_000 + b"1", r"^train\.py( line 1)? is no Python: \w"),
    ],
    ids=["null byte", "return", "depth"],
)
def test_what_python_cannot_read_is_named_with_its_line_where_there_is_one(text: bytes, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        refuse_no_python(Path("train.py"), text)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("", "workload.path is missing: name the script"),
        ("trian.py", r"trian\.py does not exist; did you mean train\.py\? there is train\.py$"),
        ("run.sh", r"run.sh is no Python script.* workload=command"),
        ("two", r"two is a folder\. Name the script in it; there are a\.py, b\.py$"),
        ("two/pipe", r"pipe is a pipe or a device\. Name a file that ends in \.py$"),
        ("two/loop", r"leads nowhere: Too many levels of symbolic links\. Name a file"),
    ],
)
def test_what_is_no_script_is_refused_with_what_may_have_been_meant(
    tmp_path: Path, path: str, message: str
) -> None:
    write(tmp_path, train="", two__a="", two__b="")
    (tmp_path / "run.sh").write_text("")
    (tmp_path / "two/loop").symlink_to("loop")
    os.mkfifo(tmp_path / "two/pipe")
    with pytest.raises(ConfigError, match=message):
        Sources(ScriptConfig(path, folder=str(tmp_path)))


def test_a_module_of_a_package_finds_the_package_around_it(tmp_path: Path) -> None:
    write(tmp_path, pkg__train="from .net import a\nimport pkg.data", pkg__net="", pkg__data="", data="")
    (tmp_path / "pkg/__init__.py").write_text("")
    config = ScriptConfig("pkg/train.py", module="pkg.train", folder=str(tmp_path))
    files = {file.relative_to(tmp_path).as_posix() for file in Sources(config).files}
    assert files == {"pkg/__init__.py", "pkg/train.py", "pkg/net.py", "pkg/data.py"}
