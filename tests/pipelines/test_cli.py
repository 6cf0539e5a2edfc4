"""The console script as a person meets it: help at once, and one clear paragraph for every mistake."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipelines import cli

MISTAKES = [
    (["swep"], "swep is no command; choose from: run, sweep"),
    (["sweep", "workload=digitz"], "workload=digitz is unknown; choose from: digits"),
    (["sweep", "toggles.ampp=bf16"], "toggles.ampp is unknown; did you mean amp"),
    (["sweep", "toggles.amp=bf17"], "toggles.amp=bf17 is not a level of amp; choose from: off, bf16, fp16"),
    (["sweep", "toggles.non_blocking=on"], "non_blocking=on requires pin_memory=on"),
    (["sweep", "axes.amp=[bf17]"], "choose from: off, bf16, fp16"),
    (["sweep", "workload.batch_size=-1"], "workload.batch_size"),
    (["sweep", "workload.batch=3"], "workload.batch"),
    (["sweep", "measure.rounds=none"], "measure.rounds"),
    (["sweep", "measure.round=3"], "round"),
    (["sweep", "sweep=demos"], "sweep/demos"),
    (["sweep", "runs=/proc/nowhere"], "runs=/proc/nowhere: cannot write"),
    (["sweep", "+foo=1"], "foo is unknown; choose from: workload, toggles"),
    (["sweep", "measure=quickk"], "Available options in 'measure': default precise quick resident"),
    (["compare", "nowhere"], "nowhere is no folder of a sweep"),
    (["describe", "nothing"], "workload=nothing is unknown"),
]


@pytest.mark.parametrize(
    ("arguments", "message"), MISTAKES, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_a_mistake_is_one_paragraph_on_stderr_and_status_2(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as exit_:
        cli.main(arguments)
    err = capsys.readouterr().err
    assert exit_.value.code == 2
    assert message in err
    assert "Traceback" not in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "arguments", [["--help"], ["compare", "--help"], ["new", "--help"], ["completion", "bash"]], ids=" ".join
)
def test_help_imports_nothing_heavy_and_takes_a_fraction_of_a_second(arguments: list[str]) -> None:
    code = (
        "import sys, time; from pipelines import cli\n"
        f"try: cli.main({arguments})\nexcept SystemExit: pass\n"
        "print('\\n', time.process_time(), *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "perfsweep" in done.stdout
    seconds, *modules = done.stdout.rpartition("\n ")[2].split()
    assert not {"torch", "hydra", "omegaconf", "wandb", "numpy", "scipy", "rich", "polars"} & set(modules)
    assert float(seconds) < 0.6


def test_every_command_is_in_the_help() -> None:
    assert [command for command in cli.COMMANDS if f"\n  perfsweep {command}" not in cli.HELP] == []


def test_what_cfg_shows_is_what_would_run() -> None:
    """An option of Hydra's must not change which sweep is chosen when none is named."""
    assert cli._spelled_out("sweep", ["workload=probe1d", "--cfg", "job"])[-1] == "sweep=probe1d/demo"


def test_no_arguments_show_help_and_are_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main([])
    assert exit_.value.code == 2
    assert "perfsweep sweep" in capsys.readouterr().out


def test_hydras_own_options_work_through_the_command() -> None:
    command = [
        sys.executable,
        "-m",
        "pipelines.cli",
        "sweep",
        "measure.rounds=3",
        "toggles.amp=bf16",
        "--cfg",
        "job",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "rounds: 3" in done.stdout
    assert "amp: bf16" in done.stdout


@pytest.mark.parametrize(
    ("given", "spelled"),
    [
        (["sweep=demo"], ["sweep=digits/demo"]),
        (["sweep=ablation"], ["sweep=ablation"]),
        (["toggles.amp=bf16", "axes.slab=[1,2]"], ["++toggles.amp=bf16", "++axes.slab=[1,2]"]),
        (["workload=a.b:C"], ["workload='a.b.C'", "sweep=ablation"]),
        (
            ["workload=a.b:C", "workload.size=3", "sweep=x"],
            ["workload='a.b.C'", "++workload.size=3", "sweep=x"],
        ),
    ],
)
def test_overrides_are_spelled_out_for_hydra(given: list[str], spelled: list[str]) -> None:
    assert cli._spelled_out("sweep", given) == spelled
    assert not any(
        override.startswith("sweep=") for override in cli._spelled_out("run", ["workload=probe1d"])
    )


def test_a_workload_can_be_listed_and_described(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, expected in (
        (["list"], "digits"),
        (["describe", "digits"], "grad_checkpointing"),
        (["describe", "digits"], "width=16"),
    ):
        with pytest.raises(SystemExit) as exit_:
            cli.main(arguments)
        assert exit_.value.code == 0
        assert expected in capsys.readouterr().out
