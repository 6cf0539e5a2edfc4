"""`perfsweep script`: a first look at a training script."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from loops import LOOP
from typed import ended

from perfsweep.pipelines.check.first_look import Parting, Seen
from perfsweep.pipelines.commands import script_looking as command
from perfsweep.pipelines.config import composition, validation
from perfsweep.pipelines.config.pasted_line import PastedLine
from perfsweep.pipelines.config.types import SweepCommand
from perfsweep.workloads.api import Evidence, Level, Toggle
from perfsweep.workloads.errors import ConfigError

HASHES = "SCALE = 1.0 + [*{'a', 'b', 'c', 'd', 'e', 'f', 'g'}].index('c')\n"
SCALED = LOOP.replace(".square()", ".square().mul(SCALE)")
LOADED = """
from torch.utils.data import DataLoader
batches = iter(DataLoader(torch.arange(4000.0).reshape(1000, 4), batch_size=5, shuffle=True))
"""

EPOCHS = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.randn(100, 4), batch_size=5)
for epoch in range(1):
    for batch in loader:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    torch.save(model.state_dict(), 'model.pt')
"""

ALL = f"""
import subprocess, threading
threading.Thread(target=threading.Event().wait, name="stays").start()
open("x", "w").write("a")
subprocess.run("echo > y", shell=True)
{LOOP.replace("for number", LOADED + "for number").replace("torch.ones(3, 4)", "next(batches)")}
"""
MEASURABLE = {
    "batches, a thread, and writes": (
        ALL,
        [
            "1 an iteration by 1 SGD, after 1 backward",
            "10 parameters",
            "1 an iteration from a DataLoader, 5 examples",
            "5 examples an iteration",
            "repeats     yes",
            "leaves      threads that do not end: stays",
            "writes      x (train.py:4): into a folder of the trial's own",
            "train.py:5 starts echo > y: what a program writes",
            "y: into the script's own folder, by native",
        ],
    ),
    "hash order": (HASHES + SCALED, ["no: two runs part at iteration 1", "order of hashed things"]),
    "a write at the end of its one epoch": (
        EPOCHS,
        [
            "writes      model.pt (train.py:14): into a folder of the trial's own",
            "ends        by itself after 20 iterations",
        ],
    ),
}

REFUSED = {
    "a crash in Python": (
        LOOP + "    if number == 2: {}['missing']",
        [
            "cannot be measured: train.py raised KeyError: 'missing'",
            "train.py:11, in <module>: if number == 2: {}['missing']",
            "all that it printed: ",
        ],
    ),
    "sys.exit": ("import sys; sys.exit('no data')", ["ended itself, with status 1", "no data"]),
    "a crash": ("import ctypes; ctypes.string_at(0)", ["ended by SIGSEGV"]),
    "a write": (LOOP + "    torch.save(model, 'x.pt')", ["train.py:11 wants to write", "{scratch}"]),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path.parent))
    return tmp_path


def looked(folder: Path, text: str, *words: str) -> int:
    (folder / "train.py").write_text(text)
    return ended("script", "train.py", *words)


@pytest.mark.slow
def test_a_script_that_python_cannot_read_is_refused_before_torch_is_imported(folder: Path) -> None:
    (folder / "train.py").write_text("def f(:")
    text = (
        "import sys\n"
        "from perfsweep.pipelines import cli\n"
        "try:\n    cli.main(['script', 'train.py'])\n"
        "except SystemExit as end:\n    print(end.code, 'torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == "2 False\n"
    assert done.stderr.endswith("train.py line 1 is no Python: invalid syntax\n")


@pytest.mark.workloads
@pytest.mark.parametrize("name", MEASURABLE)
def test_what_can_be_measured_is_described(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    text, told = MEASURABLE[name]
    status, shown = looked(folder, text), capsys.readouterr().out
    assert [part for part in told if part not in shown] == []
    assert status == 0
    assert "perfsweep sweep workload=script workload.path=train.py sweep=quick" in shown


@pytest.mark.workloads
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_is_refused_in_a_paragraph(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    text, told = REFUSED[name]
    status, shown = looked(folder, text, "--timeout", "15", "--writes", "refuse"), capsys.readouterr().out
    assert [part for part in told if part not in shown] == []
    assert status == 1
    assert "Traceback" not in shown


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["--name=a b", "--text=it's"],
        ["lr=0.1", "hydra.run.dir={scratch}"],
        ["$HOME", "a,b", "--seed={seed}"],
        ["back\\slash", "#", ""],
    ],
)
def test_the_next_command_runs_the_same_arguments(folder: Path, args: list[str]) -> None:
    words = command.overrides_of(PastedLine("train.py", tuple(args)), {"every": 2, "units": None})
    typed = shlex.split(" ".join(map(command.shell_word, words)))
    workload = composition.compose("run", typed).workload
    assert (workload.path, workload.every) == ("train.py", 2)
    assert shlex.split(workload.get("args", "")) == args


SEEN = {
    "times_ns": [1e6, 2e6, 3e6],
    "setup_s": 1.5,
    "units": 16.0,
    "threads": [],
    "ended_after": 0,
    "to_epochs_end": 0,
    "counts": {"optimizer_steps": 3.0, "backward_calls": 3.0, "batches": 1.0, "examples": 16.0},
    "sight": {
        "ends": "an optimiser's step",
        "updates": {"Adam": 2},
        "models": {"Net": 1_000_000},
        "unit": "example",
        "writes": [],
        "seeded_here": [],
        "obstacles": {"amp=fp16": "needs CUDA", "sdpa": "calls no attention", "pin_memory": "needs CUDA"},
    },
}
TOGGLES = tuple(
    Toggle(name, (Level("off"), *map(Level, levels)), "")
    for name, levels in {"amp": ("bf16", "fp16"), "sdpa": ("flash",), "tf32": ("on",)}.items()
)


def test_what_was_seen_of_a_script_has_a_line_each() -> None:
    sight = SEEN["sight"] | {"unit": "iteration", "writes": ["a file"], "models": {}, "updates": {}}
    sight |= {"obstacles": dict.fromkeys(("amp", "sdpa", "tf32=on"), "no")}
    seen = SEEN | {"sight": sight, "counts": {}, "threads": ["a", "b"], "units": 1.0, "to_epochs_end": 5000}
    told = [
        line.split(maxsplit=1) for line in command._lines("train.py", Seen(seen, Evidence()), None, TOGGLES)
    ]
    assert told[1:] == [
        ["time", "2 ms an iteration (1 ms, 2 ms, 3 ms); set-up 1.5 s"],
        ["updates", "0 an iteration by no optimiser, after 0 backward"],
        ["models", "none was called before the first iteration ended"],
        ["batches", "none from a DataLoader"],
        ["units", "iterations; say how many examples one has with workload.units"],
        ["repeats", "yes: two runs computed the same"],
        ["epoch", "its end is 5000 iterations away: what happens there was not seen"],
        ["writes", "a file"],
        ["leaves", "threads that do not end: a, b; make them daemons"],
        ["can", "act     no toggle"],
        ["cannot", "act  amp, sdpa, tf32=on: no"],
    ]
    lines = list(command._lines("train.py", Seen(SEEN, Evidence()), None, TOGGLES))
    assert "  can act     amp (bf16), tf32 (on)" in lines
    assert command._units(1.0, "example") == "1 example an iteration"
    assert "by worker processes, 7 examples" in command._batches(
        {"batches": 2.0, "worker_batches": 2.0, "examples": 7.0}
    )


@pytest.mark.parametrize(
    "line", ["train.py --lr=1", "script -- python train.py --lr=1", "python train.py --lr=1"]
)
def test_a_pasted_line_is_looked_at(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    (folder / "train.py").write_text(LOOP)
    seen: list[str] = []

    def planned(asked: SweepCommand) -> None:
        seen.append(f"{asked.workload['path']} {asked.workload['args']}")
        raise ConfigError("enough")

    monkeypatch.setattr("perfsweep.pipelines.check.first_look.planned", planned)
    assert (ended(*line.split()), seen) == (2, ["train.py --lr=1"])


LEVELS = {"amp": ["bf16"], "compile": ["default"], "optimizer": ["fused"], "zero_grad": ["none"]}
LEVELS |= {"num_workers": [2], "tf32": ["on"]}


def told(
    obstacles: dict[str, str],
    *args: str,
    step_ns: float = 1e6,
    setup_s: float = 1.0,
    ended_after: int = 0,
    parting: Parting | None = None,
) -> list[str]:
    answer: dict[str, Any] = {"sight": {"obstacles": obstacles}, "times_ns": [step_ns], "setup_s": setup_s}
    seen = Seen({**answer, "ended_after": ended_after}, Evidence())
    line = PastedLine("train.py", args)
    return list(command._next(line, command.overrides_of(line, {"every": 2}), seen, parting))


def composed(line: str) -> SweepCommand:
    program, name, *words = shlex.split(line)
    assert (program, name) == ("perfsweep", "sweep")
    return validation.typed(composition.compose("sweep", words), SweepCommand)


def test_the_sweep_has_the_toggles_that_can_act_and_no_others() -> None:
    lines = told(
        {"tf32": "needs CUDA", "num_workers=2": "no", "zero_grad=none": "no", "sdpa": "no"}, "--lr=1 2"
    )
    sweep = composed(lines[3])
    assert sweep.axes == {name: LEVELS[name] for name in ("amp", "compile", "optimizer")}
    assert (sweep.workload["args"], sweep.workload["every"]) == ("'--lr=1 2'", 2)
    lines = told(dict.fromkeys(LEVELS, "no"))
    assert lines == ["next: where its time goes", lines[-1]] and lines[-1].startswith("  perfsweep profile ")


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({}, []),
        ({"step_ns": 1e9}, [8, 8, 8]),
        ({"step_ns": 3e9}, [3, 5, 3]),
        ({"ended_after": 60}, [15, 15, 15]),
        ({"ended_after": 12}, [3, 5, 3]),
    ],
)
def test_slow_iterations_or_few_are_measured_by_fewer(own: dict[str, Any], words: list[int]) -> None:
    names = ("iterations", "warmup_max", "evidence_iterations")
    asked = [f"measure.{name}={value}" for name, value in zip(names, words, strict=False)]
    lines = told({}, **own)
    measure = composed(lines[3]).measure
    assert lines[1].split()[4:] == asked
    assert not words or [getattr(measure, name) for name in names] == words


def test_a_script_that_does_not_repeat_itself_is_offered_no_patch_unless_a_variable_holds_it() -> None:
    held, not_held = (told({}, parting=Parting(1, "x", by)) for by in ("PYTHONHASHSEED=0", ""))
    assert all(line.startswith("  PYTHONHASHSEED=0 perfsweep ") for line in held[1::2])
    assert not_held[0].startswith("next: each toggle that can act by itself") and len(not_held) == 4
    assert not_held[0].endswith("and compiling; for a patch it must repeat itself")


def test_the_command_for_a_patch_has_the_scripts_arguments_and_what_an_iteration_is() -> None:
    lines = told({}, "--lr=1", "a b")
    assert lines[0] == "next: what wins together, as a patch, in about 5 min"
    slow = told({}, step_ns=5e7, setup_s=20.0)  # 7 levels and the baseline, 3 trials and 6 rounds of each
    assert slow[2] == "or each toggle that can act by itself, in about 28 min and compiling"
    assert lines[1] == "  perfsweep tune train.py workload.every=2 -- --lr=1 'a b'"
    assert lines[4] == "or where its time goes"
