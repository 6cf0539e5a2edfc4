"""A sweep from others is data: it names no address for a key, brings no code, steers no terminal."""

from __future__ import annotations

import io
import json
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from loopback import Loopback
from loopback.server import KEY
from recorded import Built, build
from rich.text import Text

from perfsweep.pipelines import terminal
from perfsweep.pipelines.commands.catalog import COMMANDS
from perfsweep.pipelines.config.tracking import CHOSEN_SERVER, own_environment
from perfsweep.pipelines.publish.server import api_key, key_may_go_to, probe
from perfsweep.pipelines.store.options import TrackingConfig
from perfsweep.pipelines.store.planned import known_workload
from perfsweep.pipelines.store.schema import Manifest
from perfsweep.pipelines.terminal import error_console, plain_console
from perfsweep.workloads import native
from perfsweep.workloads.errors import ConfigError, harmless

THEIRS = "https://theirs.example"
MODULE = (
    "from pathlib import Path\nPath('imported').touch()\nfrom perfsweep.workloads.digits.workload import *\n"
)


def edited(built: Built, change: Callable[[Manifest], Manifest]) -> Path:
    """The folder of a sweep whose plan was changed, and sealed again, by who sent it."""
    built.folder.write_manifest(change(built.manifest))
    return built.folder.path


def of_workload(name: str) -> Callable[[Manifest], Manifest]:
    def change(manifest: Manifest) -> Manifest:
        sweep = manifest.sweep.model_copy(update={"workload": name, "config": {}})
        return manifest.model_copy(update={"sweep": sweep})

    return change


# --- keys


def test_a_key_of_the_shell_goes_to_no_server_that_a_sweep_alone_names(backend: Loopback) -> None:
    named = TrackingConfig(mode="online", base_url=backend.url)
    shell = {"WANDB_API_KEY": KEY, "WANDB_BASE_URL": "https://own.example"}
    found = probe(named, shell)
    assert found.problem is not None
    assert f"WANDB_BASE_URL={backend.url}" in found.problem and KEY not in found.problem
    assert not backend.requests
    assert probe(named, {**shell, "WANDB_BASE_URL": backend.url}).entity == "team"
    assert backend.requests


@pytest.mark.parametrize(
    ("shell", "sent"),
    [
        ({}, False),
        ({"WANDB_BASE_URL": "https://own.example"}, False),
        ({"WANDB_BASE_URL": f"{THEIRS}.own.example"}, False),
        ({"WANDB_BASE_URL": f"{THEIRS}/"}, True),
        ({CHOSEN_SERVER: THEIRS}, True),
        ({CHOSEN_SERVER: ""}, False),
    ],
)
def test_a_key_goes_where_its_owner_says(
    shell: dict[str, str], sent: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    shell = {**shell, "WANDB_API_KEY": KEY}
    assert api_key(THEIRS, shell) == (KEY if sent else None)
    for name, value in shell.items():
        monkeypatch.setenv(name, value)
    with own_environment(tmp_path, THEIRS, credentials=key_may_go_to(THEIRS, shell)):
        assert os.environ.get("WANDB_API_KEY") == (KEY if sent else None), "W&B's client would send it"


def test_a_server_of_its_own_in_netrc_gets_that_key_and_not_the_shells(shell: pytest.MonkeyPatch) -> None:
    (Path(os.environ["HOME"]) / ".netrc").write_text(f"machine theirs.example login user password {'n' * 40}")
    assert api_key(THEIRS, {"WANDB_API_KEY": KEY}) == "n" * 40


@pytest.mark.parametrize("url", ["http://wandb.lab", "http://10.0.0.7:8080", "http://localhost.evil.example"])
def test_no_key_crosses_a_network_in_plain_text(url: str, shell: pytest.MonkeyPatch) -> None:
    asked = {"WANDB_API_KEY": KEY, "WANDB_BASE_URL": url}
    assert api_key(url, asked) is None
    assert "plain http" in (probe(TrackingConfig(mode="online"), asked).problem or "")


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080", "http://localhost:8080", "http://[::1]:8080"])
def test_a_server_on_this_machine_may_be_plain_http(url: str, shell: pytest.MonkeyPatch) -> None:
    assert api_key(url, {"WANDB_API_KEY": KEY, "WANDB_BASE_URL": url}) == KEY


# --- code


def said(*words: str) -> Result:
    return CliRunner().invoke(COMMANDS, list(words), standalone_mode=False)


@pytest.mark.parametrize("command", ["compare", "history"])
def test_reading_a_sweep_imports_no_module_of_its_folder(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = edited(build(tmp_path / "sweep"), of_workload("brought_along:Digits"))
    (folder / "brought_along.py").write_text(MODULE)
    monkeypatch.chdir(folder)
    found = said(command, ".")
    assert found.exception is None and found.output
    assert not (folder / "imported").exists()


def test_a_reader_that_needs_the_workload_names_what_imports_it() -> None:
    with pytest.raises(ConfigError, match="imports no code; `compare --trust` imports it from here"):
        known_workload("brought_along:Digits", {})


def test_trust_imports_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = edited(build(tmp_path / "sweep"), of_workload("trusted_module:Digits"))
    (folder / "trusted_module.py").write_text(MODULE)
    monkeypatch.chdir(folder)
    said("compare", ".", "--trust")
    assert (folder / "imported").exists()


# --- terminals

HOSTILE = "arm\x1b]0;X\x07\x1b[2J\x9b2J\x7fend"


def test_no_control_character_of_a_text_reaches_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    for console in (plain_console(), error_console()):
        console.print(Text(HOSTILE), HOSTILE)
    shown = "".join(capsys.readouterr())
    assert shown.count("arm") == 4
    assert not {"\x1b", "\x07", "\x9b", "\x7f"} & set(shown)


def test_colours_still_do(monkeypatch: pytest.MonkeyPatch) -> None:
    console = terminal._TextConsole(file=io.StringIO(), force_terminal=True, color_system="standard")
    console.print(Text(HOSTILE, style="red"))
    written = console.file.getvalue()  # type: ignore[attr-defined]
    assert written.startswith("\x1b[31m") and written.count("\x1b") == 2


def test_lines_and_columns_of_a_text_stay() -> None:
    assert harmless("a\tb\nc\rd ä 漢") == "a\tb\nc d ä 漢"


# --- kernels


@pytest.fixture
def shared_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files in which others may have been first."""
    monkeypatch.delenv(native.CACHE_VARIABLE, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    native._of_this_process.cache_clear()
    return tmp_path / f"perfsweep-native-{os.getuid()}"


def test_built_kernels_are_kept_where_only_their_user_writes(shared_tmp: Path) -> None:
    assert native._folder() == shared_tmp == native._folder()
    assert stat.S_IMODE(shared_tmp.stat().st_mode) == 0o700


@pytest.mark.parametrize("planted", ["a link", "a file", "open to all", "another user's"])
def test_a_folder_that_another_user_may_write_is_not_used(
    planted: str, shared_tmp: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if planted == "a link":
        (tmp_path / "elsewhere").mkdir()
        shared_tmp.symlink_to(tmp_path / "elsewhere")
    elif planted == "a file":
        shared_tmp.write_text("")
    else:
        shared_tmp.mkdir()
        shared_tmp.chmod(0o777 if planted == "open to all" else 0o700)
    if planted == "another user's":
        another = os.getuid() + 1
        monkeypatch.setattr(os, "getuid", lambda: another)
        shared_tmp.rename(tmp_path / f"perfsweep-native-{os.getuid()}")
    used = native._folder()
    assert used.name != shared_tmp.name and used.parent == tmp_path
    assert stat.S_IMODE(used.stat().st_mode) == 0o700


# --- folders that belong to others


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A colleague's sweep, as the system says of it to everybody but root."""
    built = build(tmp_path / "theirs")
    monkeypatch.setattr(os, "access", lambda path, mode: not (mode & os.W_OK))
    return built.folder.path


def test_a_sweep_that_cannot_be_written_is_read_all_the_same(read_only: Path) -> None:
    before = files_of(read_only)
    found = said("compare", str(read_only), "--json")
    assert found.exception is None
    assert f"{read_only} cannot be written; `perfsweep compare" in found.output.replace("\n", "")
    assert files_of(read_only) == before
    assert json.loads(found.stdout)["report"] is None


def test_its_report_and_tables_are_written_where_one_says(read_only: Path, tmp_path: Path) -> None:
    before, output = files_of(read_only), tmp_path / "mine"
    found = said("compare", str(read_only), "--output", str(output))
    assert found.exception is None
    assert {"report.html", "report.md", "tables/effects.parquet"} <= set(files_of(output))
    assert files_of(read_only) == before
