"""Which calls Hydra composes, and what becomes of the others."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import pytest

from perfsweep.pipelines import cli
from perfsweep.pipelines.commands import check as module
from perfsweep.pipelines.commands import dispatch
from perfsweep.pipelines.commands.catalog import COMMANDS
from perfsweep.pipelines.commands.dispatch import Commands, Composed, Plain
from perfsweep.pipelines.config.pasted_line import PastedLine
from perfsweep.workloads.errors import ConfigError


def composed(**own: Any) -> Composed:
    return Composed("sweep", "measure it", "sweep:sweep", example="workload=digits", **own)


@pytest.mark.parametrize(
    ("overrides", "options", "of_folder", "composes"),
    [
        ((), {}, "profile:profile_folder", True),
        (("workload=digits",), {}, "profile:profile_folder", True),
        (("digits",), {}, "profile:profile_folder", True),
        (("mine:Own",), {}, "profile:profile_folder", True),
        (("--cfg", "job"), {}, "profile:profile_folder", True),
        (("runs/digits-demo",), {}, "profile:profile_folder", False),
        (("workload=digits", "runs/digits-demo"), {}, "profile:profile_folder", True),
        (("workload=digits",), {"arm": "naive"}, "profile:profile_folder", False),
        (("workload=digits",), {"arm": None, "diff": ()}, "profile:profile_folder", True),
        (("runs/digits-demo",), {"arm": "naive"}, None, True),
    ],
)
def test_a_folder_or_an_option_of_its_own_is_not_composed(
    overrides: tuple, options: dict, of_folder: str | None, composes: bool
) -> None:
    assert composed(of_folder=of_folder).is_composed(overrides, **options) is composes


class Called(Composed):
    """Says which function it would have called, and with what."""

    def function(self, target: str | None = None) -> Any:
        return lambda *given, **named: (target or self.target, given, named)


def invoked(monkeypatch: pytest.MonkeyPatch, *words: str, **own: Any) -> Any:
    command = Called("sweep", "measure it", "sweep:sweep", example="", **own)
    monkeypatch.setattr(dispatch.composition, "compose", lambda name, given: {"of": name})
    monkeypatch.setattr(
        dispatch.composition, "run_hydra", lambda name, given, action: ("hydra", name, action("its cfg"))
    )
    context = click.Context(command, info_name="sweep")
    context.params = {"overrides": words}
    return command.invoke(context)


def test_what_is_composed_is_handed_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.chdir(tmp_path)
    cfg = ({"of": "sweep"},)
    assert invoked(monkeypatch, "workload=digits") == ("sweep:sweep", cfg, {})
    assert invoked(monkeypatch, "workload=digits", nameless="sweep:ask") == ("sweep:sweep", cfg, {})
    assert invoked(monkeypatch, "digits", nameless="sweep:ask") == ("sweep:sweep", cfg, {})
    assert invoked(monkeypatch, nameless="sweep:ask") == ("sweep:ask", cfg, {})
    assert invoked(monkeypatch) == ("sweep:sweep", cfg, {})


def test_hydras_own_options_are_left_to_hydra(monkeypatch: pytest.MonkeyPatch) -> None:
    found = invoked(monkeypatch, "--cfg", "job", nameless="sweep:ask")
    assert found == ("hydra", "sweep", ("sweep:sweep", ("its cfg",), {}))


@pytest.mark.parametrize("first", ["digits", "mine:Own"])
def test_a_doctor_of_a_workload_is_its_check(first: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        dispatch.Plain, "function", lambda self, target=None: lambda *given: (target or self.target, given)
    )
    doctor = COMMANDS.commands["doctor"]
    context = click.Context(doctor, info_name="doctor")
    context.params = {"overrides": (first, "workload.x=1")}
    assert doctor.invoke(context) == ("check:check", (first, ["workload.x=1"]))


def test_a_folder_is_handed_on_with_all_options(monkeypatch: pytest.MonkeyPatch) -> None:
    found = invoked(monkeypatch, "runs/x", of_folder="profile:profile_folder")
    assert found == ("profile:profile_folder", (), {"overrides": ("runs/x",)})


def test_a_command_calls_its_function_by_name() -> None:
    assert Plain("list", "show it", "list:list_names").function().__name__ == "list_names"
    assert Plain("list", "show it", "list:list_names").function("list:describe").__name__ == "describe"
    command = Plain("list", "show what there is", "list:list_names")
    assert (command.short_help, command.help) == ("show what there is", "Show what there is.")


def test_an_unknown_command_is_answered_with_the_nearest_of_those_that_are_shown() -> None:
    hidden = Plain("secret", "not shown", "a:b", hidden=True)
    shown = [Plain(name, "do it", "a:b") for name in ("sweep", "run")]
    group = Commands("perfsweep", commands=[*shown, hidden])
    context = click.Context(group)
    assert group.list_commands(context) == ["sweep", "run", "secret"]
    with pytest.raises(
        ConfigError, match=r"^swep is no command; did you mean sweep\? choose from: sweep, run$"
    ):
        group.resolve_command(context, ["swep"])
    name, command, rest = group.resolve_command(context, ["run", "x"])
    assert (name, command, rest) == ("run", shown[1], ["x"])
    assert group.resolve_command(context, ["secret"])[0] == "secret"


def ended(*words: str) -> int:
    with pytest.raises(SystemExit) as end:
        cli.main(list(words))
    return int(end.value.code or 0)


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


LINES = {
    "other_name.py": PastedLine("other_name.py"),
    "inner/train.py -- --lr=1": PastedLine("inner/train.py", ("--lr=1",)),
    "../here/train.py -- a": PastedLine("../here/train.py", ("a",)),
    "-- train.py --lr=1": PastedLine("train.py", ("--lr=1",)),
    "python -u train.py -- --lr 1": PastedLine("train.py", ("--lr", "1")),
    "-- python train.py -- --lr=1": PastedLine("train.py", ("--", "--lr=1")),
    "-m pkg.train -- --lr=1": PastedLine("pkg/train.py", ("--lr=1",), "pkg.train"),
    "-- -m pkg.train --lr=1": PastedLine("pkg/train.py", ("--lr=1",), "pkg.train"),
    "python -m pkg.train": PastedLine("pkg/train.py", (), "pkg.train"),
    "torchrun --nproc-per-node=1 train.py -- a": PastedLine("train.py", ("a",), ranks=1),
    "-- torchrun --nproc-per-node 2 -m pkg.train a": PastedLine("pkg/train.py", ("a",), "pkg.train", 2),
    "accelerate launch train.py": PastedLine("train.py"),
    "LR=1 python train.py -- a": PastedLine("train.py", ("a",), variables={"LR": "1"}),
    "my-train -- --lr=1": PastedLine("bin/my-train", ("--lr=1",)),
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("train.py", "other_name.py", "inner/train.py", "pkg/train.py", "bin/my-train"):
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
def test_options_may_stand_after_the_script_too(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "torchrun --nproc-per-node=1 train.py --apply measure.rounds=3 --iteration backward -- --lr=1"
    (found, overrides), named = started(monkeypatch, "tune", *words.split())
    assert (found, [*overrides]) == (PastedLine("train.py", ("--lr=1",), ranks=1), ["measure.rounds=3"])
    assert (named["apply"], named["iteration"]) == (True, "backward")


@pytest.mark.usefixtures("here")
def test_an_argument_of_the_script_that_is_not_after_two_dashes_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ended("tune", "train.py", "--lr=1") == 2
    assert (
        "Put arguments of the script after --: perfsweep tune train.py -- --lr=1" in capsys.readouterr().err
    )


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("words", ["digits", "workload=digits tune.rounds=2"])
def test_a_workload_is_no_script(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("digits").touch()
    (cfg,), named = started(monkeypatch, "tune", *words.split())
    assert (cfg.workload.name, named) == ("digits", {})


@pytest.mark.parametrize(
    ("values", "toggles", "only"),
    [(("measure.timeout_s=9", "workload.x=1"), None, None), ((), "amp, compile,", ["amp", "compile"])],
)
def test_what_was_typed_is_what_is_checked(
    values: tuple, toggles: str | None, only: list | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[Any]()
    monkeypatch.setattr(module.composition, "compose", lambda *words: words)
    monkeypatch.setattr(module, "run_check", lambda *words: asked.append(words) or 1)
    assert module.check("mine:Own", values, toggles) == 1
    assert asked == [(("run", ["workload=mine:Own", *values]), values, only)]


@pytest.mark.parametrize("toggles", ["", " ,"])
def test_no_toggle_is_not_all_of_them(toggles: str) -> None:
    with pytest.raises(ConfigError, match="--toggles holds no name"):
        module.check("mine:Own", (), toggles)
