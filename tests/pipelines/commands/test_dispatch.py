"""Which calls Hydra composes, and what becomes of the others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import pytest
from typed import ended
from written import found_in

from perfsweep.pipelines.commands import arguments, dispatch
from perfsweep.pipelines.commands.catalog import COMMANDS
from perfsweep.pipelines.commands.dispatch import Composed, Plain
from perfsweep.pipelines.config.pasted_line import PastedLine


def composed(**own: Any) -> Composed:
    return Composed("sweep", "measure it", "sweep:sweep", example="workload=digits", **own)


@pytest.mark.parametrize(
    ("overrides", "options", "of_folder", "composes"),
    [
        ((), {}, "profile:profile_folder", True),
        (("workload=digits",), {}, "profile:profile_folder", True),
        (("mine:Own",), {}, "profile:profile_folder", True),
        (("runs/digits-demo",), {}, "profile:profile_folder", False),
        (("workload=digits", "runs/digits-demo"), {}, "profile:profile_folder", True),
        (("workload=digits",), {"arm": "naive"}, "profile:profile_folder", False),
        (("runs/digits-demo",), {"arm": "naive"}, None, True),
    ],
)
def test_a_folder_or_an_option_of_its_own_is_not_composed(
    overrides: tuple, options: dict, of_folder: str | None, composes: bool
) -> None:
    assert composed(of_folder=of_folder).is_composed(overrides, **options) is composes


def test_a_doctor_of_a_workload_is_its_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        dispatch.Plain, "function", lambda self, target=None: lambda *given: (target or self.target, given)
    )
    doctor = COMMANDS.commands["doctor"]
    context = click.Context(doctor, info_name="doctor")
    context.params = {"overrides": ("mine:Own", "workload.x=1")}
    assert doctor.invoke(context) == ("doctor:check", ("mine:Own", ["workload.x=1"]))


def test_the_version_is_one_line_whatever_else_is_typed(capsys: pytest.CaptureFixture[str]) -> None:
    assert (ended("--version"), ended("--version", "list")) == (0, 0)
    assert capsys.readouterr().out == f"perfsweep {version('perfsweep')}\n" * 2


def test_the_help_of_what_is_composed_has_an_example_the_options_and_how_hydras_are_found(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ended("run", "--help") == 0
    usage, example, hydra = re.split(r"\nExample:\n|\n\n(?=  --cfg)", capsys.readouterr().out)
    assert "[KEY=VALUE]..." in usage and example.startswith("  perfsweep run workload=digits toggles.")
    assert "measure.iterations" in example
    assert hydra.startswith("  --cfg job shows the configuration") and "--info" in hydra


LIST = Path(__file__).with_name("commands.txt")


def described() -> Iterator[str]:
    """The page of all commands; a line for each, and for each argument: names, kind, default, help."""
    shell = COMMANDS.make_context("perfsweep", [], resilient_parsing=True, terminal_width=110)
    yield f"{COMMANDS.get_help(shell)}\n"
    kinds = {id(kind): name for name, kind in vars(arguments).items() if name.isupper()}
    own = ("target", "of_script", "of_folder", "of_workload", "nameless", "example", "hidden")
    for command in COMMANDS.commands.values():
        told = [f"{name}={vars(command)[name]}" for name in own if vars(command).get(name)]
        told += ["passes on what it does not know"] * command.ignore_unknown_options
        yield f"\n{command.name}: {', '.join(told)}\n  {command.help}\n"
        for one in command.params:
            said = vars(one)
            told = [*one.opts, f"as {one.name}", kinds.get(id(one.type), str(one.type))]
            told += [said["metavar"]] * bool(said["metavar"]) + [f"{one.nargs} words"] * (one.nargs != 1)
            told += [word for word in ("required", "multiple", "is_flag", "show_default") if said.get(word)]
            told += [f"default {one.default}"] * isinstance(one.default, str | float)
            yield f"  {', '.join(told)}\n    {said['help']}\n"


def test_every_command_takes_what_the_list_of_them_says(tmp_path: Path) -> None:
    assert found_in(LIST, "".join(described()), tmp_path)


LINES = {
    "inner/train.py -- --lr=1": PastedLine("inner/train.py", ("--lr=1",)),
    "-- python train.py -- --lr=1": PastedLine("train.py", ("--", "--lr=1")),
    "-- torchrun --nproc-per-node 2 -m pkg.train a": PastedLine("pkg/train.py", ("a",), "pkg.train", 2),
    "LR=1 python train.py -- a": PastedLine("train.py", ("a",), variables={"LR": "1"}),
    "my-train -- --lr=1": PastedLine("bin/my-train", ("--lr=1",)),
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("train.py", "inner/train.py", "pkg/train.py", "bin/my-train"):
        (tmp_path / "here" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "here" / name).touch(0o755)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("PATH", "bin")
    monkeypatch.delenv("LR", raising=False)


def started(monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[tuple, dict]:
    """With what the function of a command is called."""
    calls = list[tuple[tuple, dict]]()
    monkeypatch.setattr(
        Plain, "function", lambda self, target=None: lambda *given, **named: calls.append((given, named)) or 0
    )
    assert ended(*words) == 0
    return calls[0]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("own", [(), ("measure.rounds=3",)])
@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("command", ["tune", "run"])
def test_a_script_is_named_as_in_the_line_that_starts_it(
    command: str, line: str, own: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    (found, overrides), _ = started(monkeypatch, command, *own, *line.split())
    assert (found, tuple(overrides)) == (LINES[line], own)


@pytest.mark.usefixtures("here")
def test_an_argument_of_the_script_that_is_not_after_two_dashes_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ended("tune", "train.py", "--lr=1") == 2
    assert (
        "Put arguments of the script after --: perfsweep tune train.py -- --lr=1" in capsys.readouterr().err
    )
