"""The console script as a person meets it: help at once, and one clear paragraph for every mistake."""

from __future__ import annotations

import errno
import inspect
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import click
import pytest
from typed import ended

from perfsweep.pipelines import cli
from perfsweep.pipelines.commands.catalog import COMMANDS, Composed
from perfsweep.pipelines.commands.dispatch import of_the_system, refuse_machine
from perfsweep.pipelines.config import composition
from perfsweep.slurm.errors import ClusterError
from perfsweep.workloads import registry
from perfsweep.workloads.errors import ConfigError

HEAVY = {"torch", "wandb", "numpy", "scipy", "polars", "plotly", "matplotlib"}


def imported(*lines: list[str]) -> set[str]:
    """Modules of a process that is given these command lines in turn."""
    code = (
        "import sys; from perfsweep.pipelines import cli\n"
        f"for line in {lines}:\n"
        "    try: cli.main(line)\n"
        "    except SystemExit: pass\n"
        "print('\\n', *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.rpartition("\n ")[2].split())


def test_help_imports_nothing_that_takes_more_than_a_fraction_of_a_second() -> None:
    assert not {*HEAVY, "hydra", "omegaconf", "pydantic", "rich"} & imported(["--help"])


def test_the_help_of_no_command_imports_anything_heavy() -> None:
    assert not HEAVY & imported(*([name, "--help"] for name in COMMANDS.commands))


APART = ("digits", "latentwire", "probe1d", "spd")
"""Workloads that are planned without torch; Prover's plan tries whether its queries can be ranked."""


@pytest.mark.parametrize(
    "lines",
    [
        [["sweep", f"workload={name}", "dry_run=true"] for name in APART],
        [["list"], *(["describe", name] for name in (*APART, "prover"))],
    ],
    ids=["sweep", "describe"],
)
def test_what_only_reads_declarations_imports_neither_torch_nor_what_judges_and_draws(lines) -> None:
    found = imported(*lines)
    assert "perfsweep.workloads.spd.declaration" in found
    assert not {"torch", "wandb", "pynvml", "scipy.stats", "matplotlib", "jinja2"} & found


@pytest.mark.parametrize(
    "arguments",
    [
        ["swep"],
        ["compare", "--agianst"],
        ["sweep", "workload=digitz"],
        ["sweep", "sweep=demos"],
        ["describe", "nothing"],
    ],
    ids=" ".join,
)
def test_a_mistake_in_a_name_is_answered_before_anything_heavy_is_imported(arguments: list[str]) -> None:
    assert not {*HEAVY, "hydra"} & imported(arguments)


def test_a_mistake_in_a_field_is_answered_without_torch() -> None:
    nowhere = ["sweep", "workload=script", "workload.path=nowhere.py"]
    assert "torch" not in imported(["sweep", "measure.round=3"], nowhere)


def test_every_command_leads_to_a_function_that_takes_its_arguments() -> None:
    for name, command in COMMANDS.commands.items():
        function = command.function()
        taken = list(inspect.signature(function).parameters)
        given = ["cfg"] if isinstance(command, Composed) else [param.name for param in command.params]
        assert sorted(taken) == sorted(filter(None, given)), name


def test_no_arguments_show_help_and_are_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended() == 2
    assert "every arm of a sweep" in capsys.readouterr().out


def test_hydras_own_options_work_through_the_command() -> None:
    command = [
        sys.executable,
        "-m",
        "perfsweep.pipelines.cli",
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
    assert composition.spelled_out("sweep", given) == spelled
    assert not any(
        override.startswith("sweep=") for override in composition.spelled_out("run", ["workload=probe1d"])
    )


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("workload", ["digits", pytest.param("latentwire", marks=pytest.mark.slow)])
def test_describe_cuts_no_word_off(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, workload: str, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    ended("describe", workload)
    said = capsys.readouterr().out
    assert "\N{HORIZONTAL ELLIPSIS}" not in said
    assert max(map(len, said.splitlines())) <= columns
    for toggle in registry.find(workload).toggles:
        assert any(line.split()[:1] == [toggle.name] for line in said.splitlines()), toggle.name


def test_a_workload_of_one_s_own_is_listed_with_the_words_of_its_yaml_or_its_docstring(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for module, comment in (("mine", "# rank my pages\n"), ("other", "")):
        Path(f"{module}.py").write_text(
            'class Own:\n    """Sort a list."""\n    def step(self, clock): ...\n'
        )
        Path(f"{module}.yaml").write_text(f"{comment}workload: {{}}\n")
    ended("list")
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert ["mine:Own", "rank my pages"] in lines
    assert ["other:Own", "Sort a list."] in lines


def test_a_workload_can_be_listed_and_described(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, expected in (
        (["list"], "digits"),
        (["describe", "digits"], "grad_checkpointing"),
        (["describe", "prover"], "ranks them. For those"),
        (["describe", "digits"], "width=16"),
    ):
        assert ended(*arguments) == 0
        assert expected in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "status", "sentence"),
    [
        (ConfigError("it is wrong; do right"), 2, "perfsweep list: it is wrong; do right"),
        (ClusterError("no such partition"), 2, "perfsweep list: no such partition"),
        (click.UsageError("no such option --x"), 2, "no such option --x. See perfsweep list --help."),
        (click.UsageError("No such option."), 2, "perfsweep list: No such option. See perfsweep list"),
        (KeyboardInterrupt(), 130, "perfsweep list: interrupted"),
        (
            OSError(errno.ENOSPC, "No space", "runs/a"),
            1,
            "perfsweep list: runs/a: the disk is full; free some space, or write elsewhere with TMPDIR;"
            " nothing measured is lost",
        ),
        (OSError(errno.EROFS, "Read-only"), 1, "perfsweep list: nothing can be written there; write else"),
        (OSError(errno.EIO, "Input/output error", "x"), 1, "x: Input/output error; nothing measured is lost"),
        (OSError("odd"), 1, "perfsweep list: odd; nothing measured is lost"),
        (click.exceptions.Exit(4), 4, ""),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_what_goes_wrong_is_one_sentence_and_a_status(
    error: BaseException,
    status: int,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(context: click.Context) -> None:
        raise error

    monkeypatch.setattr(cli.COMMANDS, "invoke", fail)
    done, said = ended("list"), capsys.readouterr()
    assert (done, said.out) == (status, "")
    assert sentence in said.err and said.err.count("\n") == bool(sentence)


@pytest.mark.parametrize(
    ("command", "places"),
    [("sweep", "runs=PATH or TMPDIR"), ("compare", "--output DIR or TMPDIR"), ("pack", "TMPDIR")],
)
def test_a_full_disk_is_avoided_by_words_that_the_command_has(command: str, places: str) -> None:
    said = of_the_system(OSError(errno.ENOSPC, "No space"), cli.COMMANDS.commands[command])
    assert said.endswith(f"write elsewhere with {places}; nothing measured is lost")


def test_a_current_folder_that_was_removed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PWD", str(folder))
    folder.rmdir()
    status = ended("list")
    said = f"perfsweep list: {folder}: the current folder was removed. Change to another, such as by: cd\n"
    assert (status, capsys.readouterr().err) == (2, said)


def test_a_reader_of_a_pipe_that_has_gone_is_no_error_to_talk_about() -> None:
    code = "import sys; from perfsweep.pipelines import cli; cli.main(['--help'])"
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE, check=False, text=True
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


def test_help_is_a_command_too(capsys: pytest.CaptureFixture[str]) -> None:
    pages = []
    for word in ("help", "--help"):
        assert ended(word) == 0
        pages.append(capsys.readouterr().out)
    assert pages[0] == pages[1]


def test_a_limit_on_processes_is_one_sentence_before_a_library_crashes_of_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begin, left = threading.Thread.start, iter(range(5))

    def start(thread: threading.Thread) -> None:
        if next(left, None) is None:
            raise RuntimeError("can't start new thread")
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    refuse_machine.cache_clear()
    assert ended("run", "workload=digits") == 2
    said = capsys.readouterr().err
    assert said.startswith("perfsweep run: ulimit -u: 5 more processes and threads can be started here")


def test_no_folder_for_temporary_files_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/proc/none"])
    refuse_machine.cache_clear()
    assert ended("run", "workload=digits") == 2
    assert capsys.readouterr().err == (
        "perfsweep run: TMPDIR: No usable temporary directory found in ['/proc/none']."
        " Set it to a folder that you can write\n"
    )
