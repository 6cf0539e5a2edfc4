"""Arguments: what TAB offers, in a real shell too, and which numbers are taken."""

from __future__ import annotations

import os
import pty
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from perfsweep.pipelines import cli
from perfsweep.pipelines.commands import arguments
from perfsweep.pipelines.commands.arguments import COUNT, SECONDS, SHARE
from perfsweep.pipelines.commands.catalog import COMMANDS


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # before folders of that name that other tests have left there
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    for sweep in ("digits-demo", "digits-other"):
        (tmp_path / "runs" / sweep).mkdir(parents=True)
        (tmp_path / "runs" / sweep / "manifest.jsonl").write_text("")
    (tmp_path / "runs/empty").mkdir()
    (tmp_path / "baseline.json").write_text("{}")
    (tmp_path / "mine.py").write_text(
        "class Data(dict): ...\nclass Mine(Training):\n    def build(self): ...\n"
    )
    (tmp_path / "mine.yaml").write_text("sweeps: {quick: {}, slow: {}}")
    return tmp_path


SWEEPS = ["runs/digits-demo", "runs/digits-other"]
OFFERED = [
    ("perfsweep com", ["comment", "compare", "completion"]),
    ("perfsweep compare ", SWEEPS),
    ("perfsweep sweep wor", ["workload="]),
    ("perfsweep sweep workload=mine", ["workload=mine:Mine"]),
    ("perfsweep sweep workload=digits sweep=d", ["sweep=demo"]),
    (
        "perfsweep sweep workload=mine:Mine sweep=",
        ["sweep=ablation", "sweep=placebo", "sweep=quick", "sweep=slow"],
    ),
    ("perfsweep run cluster=", []),
    ("perfsweep profile ", ["measure=", *SWEEPS, "toggles=", "tracking=", "workload="]),
    ("perfsweep describe mi", ["mine:Mine"]),
    ("perfsweep history ", ["baseline.json", "runs/", *SWEEPS]),
    ("perfsweep history runs/digits-demo ba", ["baseline.json"]),
    ("perfsweep compare runs/digits-demo --against runs/digits-o", SWEEPS[1:]),
    ("perfsweep compare runs/digits-demo --store=ba", ["--store=baseline.json"]),
    ("perfsweep nonsense ", []),
]


@pytest.mark.parametrize(("line", "offered"), OFFERED, ids=[line for line, _ in OFFERED])
def test_what_is_offered(line: str, offered: list[str]) -> None:
    assert arguments.candidates(COMMANDS, line) == offered


def test_profiles_of_the_folder_are_offered(folder: Path) -> None:
    (folder / "mine/cluster").mkdir(parents=True)
    (folder / "mine/cluster/site.yaml").write_text("")
    assert "cluster=site" not in arguments.candidates(COMMANDS, "perfsweep sweep cluster=")
    (folder / "perfsweep.yaml").write_text("conf: mine")
    assert "cluster=site" in arguments.candidates(COMMANDS, "perfsweep sweep cluster=")


def test_completing_imports_nothing_heavy() -> None:
    code = "import sys; from perfsweep.pipelines.commands import arguments, catalog\n"
    code += "arguments.candidates(catalog.COMMANDS, 'perfsweep sweep workload=probe1d sweep=')\n"
    code += "print(*sys.modules)"
    command = [sys.executable, "-c", code]
    modules = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "hydra", "omegaconf", "pydantic", "numpy", "rich"} & set(modules)


@pytest.fixture
def shell(folder: Path) -> dict[str, str]:
    """Environment of a shell that finds the command."""
    command = folder / "bin" / "perfsweep"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m perfsweep.pipelines.cli "$@"\n')
    command.chmod(0o755)
    root = str(Path(cli.__file__).parents[2])
    return {
        **os.environ,
        "PATH": f"{command.parent}:{os.environ['PATH']}",
        "PYTHONPATH": root,
        "TERM": "dumb",
    }


def missing(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(name) is None, reason=f"{name} is not installed")


@missing("bash")
@pytest.mark.parametrize(
    ("line", "replies"),
    [
        ("perfsweep comp", ["compare", "completion"]),
        # bash replaces what stands behind the last = or colon
        ("perfsweep sweep workload=mine:", ["Mine"]),
        ("perfsweep sweep workload=dig", ["digits"]),
    ],
)
def test_bash_completes(shell: dict[str, str], line: str, replies: list[str]) -> None:
    script = f"""
        eval "$(perfsweep completion bash)"
        COMP_LINE='{line}'; COMP_POINT=${{#COMP_LINE}}
        _perfsweep 2>/dev/null; printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=shell, timeout=60)
    assert done.stdout.split() == replies, done.stderr


@missing("fish")
def test_fish_completes(shell: dict[str, str]) -> None:
    script = (
        'perfsweep completion fish | source; complete -C "perfsweep sweep workload=mi"; complete -C'
        ' "perfsweep comp"'
    )
    done = subprocess.run(
        ["fish", "--no-config", "-c", script], capture_output=True, text=True, env=shell, timeout=60
    )
    assert done.stdout.split() == ["workload=mine:Mine", "compare", "completion"], done.stderr


@missing("zsh")
def test_zsh_completes(shell: dict[str, str]) -> None:
    """Its completion lives in the line editor: a terminal is needed to press TAB on."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe("zsh", ["zsh", "-f", "-i"], shell)
    try:
        os.write(terminal, b'eval "$(perfsweep completion zsh)"; echo rea""dy\n')
        read_until(terminal, b"ready")
        os.write(terminal, b"perfsweep sweep workload=mi\t")
        assert b"workload=mine:Mine" in read_until(terminal, b"workload=mine:Mine")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


def read_until(terminal: int, text: bytes) -> bytes:
    """What a terminal shows until `text` is there."""
    said = b""
    while text not in said:
        said += os.read(terminal, 65536)
    return said


@pytest.mark.parametrize(
    ("kind", "text", "number"),
    [
        (SHARE, "0", 0.0),
        (SHARE, "10", None),
        (SHARE, "nan", None),
        (SHARE, "five", None),
        (COUNT, "0", None),
        (COUNT, "1e11", 1e11),
        (COUNT, "1e30", None),
        (SECONDS, "-1", None),
    ],
)
def test_a_number_lies_within_its_bounds(kind: Any, text: str, number: float | None) -> None:
    if number is not None:
        assert kind.convert(text, None, None) == number
        return
    with pytest.raises(click.UsageError, match=f"{text} is no .*(share such as|positive number)"):
        kind.convert(text, None, None)
