"""Every command in the documentation is one that exists and is understood; the quickstart is done as it is
written."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from documented import PAGES, ROOT, SHORT, blocks, commands, perform
from typed import ended

from perfsweep.pipelines.commands.catalog import COMMANDS, Composed
from perfsweep.pipelines.config import composition, pasted_line, types, validation
from perfsweep.pipelines.config.types import FrontierCommand, RunCommand, SweepCommand, TuneCommand
from perfsweep.pipelines.plan.arms import Space
from perfsweep.pipelines.plan.plan import load_workload, make_plan, single_arm
from perfsweep.pipelines.profiling.profile_trials import wanted
from perfsweep.pipelines.search import factors, ladders
from perfsweep.slurm.site import Shape
from perfsweep.workloads import registry
from perfsweep.workloads.api import Device
from perfsweep.workloads.prover.config import ProverConfig

QUICK = ("README.md", "index.md")


def documented() -> list[ParameterSet]:
    """Every call that the pages show, with the first page that does; those of two pages are quick."""
    shown = {tuple(words): page for page in reversed(PAGES) for words in commands(page, "perfsweep")}
    slow = {page: () if page.name in QUICK else pytest.mark.slow for page in shown.values()}
    return [pytest.param(page, list(words), marks=slow[page]) for words, page in shown.items()]


GPU = Device("cuda", 1, "a GPU", 2**36, (9, 0), 8, True)


def shown(value: object) -> str:
    return (
        value.name
        if isinstance(value, Path)
        else " ".join(map(str, value))
        if isinstance(value, list)
        else ""
    )


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the pages tell to write, and what init and new have made."""
    folder = tmp_path_factory.mktemp("prepared")
    for page in PAGES:
        for block in blocks(page):
            if block.file:
                (folder / block.file).parent.mkdir(parents=True, exist_ok=True)
                (folder / block.file).write_text(block.text)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", [*sys.path])
        for command in (["init", "."], ["new", "my_workload"]):
            ended(*command)
    return folder


@pytest.fixture
def folder(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The prepared folder, in which a reader is."""
    monkeypatch.chdir(prepared)
    monkeypatch.setattr(sys, "path", [*sys.path, str(prepared)])
    # Models, data and checkpoints that the pages name are the reader's.
    for name in ("latentwire", "probe1d", "prover", "spd"):
        monkeypatch.setattr(registry.declared(name), "planned", lambda config: config)
    own = ProverConfig(data="kinship").problem
    monkeypatch.setattr(ProverConfig, "problem", own)
    return prepared


@pytest.mark.parametrize(("page", "words"), documented(), ids=shown)
def test_a_documented_command_is_understood(page: Path, words: list[str], folder: Path) -> None:
    """Composed commands are planned whole, for a machine with a GPU; of others the arguments are parsed."""
    command, rest = words[0], words[1:]
    if command.startswith("-"):
        assert command in ("--help", "--version")
        return
    if command not in COMMANDS.commands:
        assert pasted_line.starts_a_script(words)
        return
    known = COMMANDS.commands[command]
    if not rest:
        return  # a mention of the command, not a call
    words = [word for word in rest if word not in ("|", "source")]
    context = known.make_context(command, words)
    if isinstance(known, Composed) and known.is_composed(**context.params):
        plan(command, [word for word in rest if not re.match(r"-|job$", word)])


def plan(command: str, words: list[str]) -> None:
    cfg = composition.compose(command, words)
    if command == "sweep":
        assert make_plan(validation.typed(cfg, SweepCommand), GPU).effects
    elif command in ("run", "profile"):
        run = validation.typed(cfg, types.ProfileCommand if command == "profile" else RunCommand)
        one = SweepCommand(workload=run.workload, toggles=run.toggles, measure=run.measure)
        assert single_arm(one, GPU).arms
        assert not isinstance(run, types.ProfileCommand) or wanted(run.profile)[0]
    elif command == "tune":
        tune = validation.typed(cfg, TuneCommand)
        space = space_of(tune)
        assert factors.search_factors(
            space, space.closure({**tune.toggles, **tune.tune.reference}), tune.tune
        )[0]
    elif command == "frontier":
        frontier = validation.typed(cfg, FrontierCommand)
        toggle = space_of(frontier).toggle(str(frontier.frontier.toggle))
        assert ladders.sizes_of(toggle, frontier.frontier.sizes)
    else:
        validation.typed(cfg, types.DoctorCommand)


def space_of(command: SweepCommand) -> Space:
    cls, values = load_workload(command.workload)
    return Space(cls.toggles, values, GPU)


def test_the_site_profiles_of_the_guide_compose_and_ask_slurm_for_something(folder: Path) -> None:
    profiles = [path.stem for path in (folder / "configs/cluster").glob("*.yaml")]
    assert {"site", "university", "centre", "whole_node", "container", "spot"} <= set(profiles)
    for name in profiles:
        cfg = composition.compose("doctor", [f"cluster={name}"])
        cluster = validation.typed(cfg, types.DoctorCommand).cluster
        options = cluster.options(Shape.of(cluster))
        assert cluster.executor == "slurm"
        assert options["time"] == cluster.time_min


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_documented_make_targets_exist() -> None:
    calls = {word for page in PAGES for words in commands(page, "make") for word in words}
    targets = sorted(word for word in calls if re.fullmatch(r"[\w-]+", word))
    done = subprocess.run(["make", "-n", *targets], cwd=ROOT, capture_output=True, text=True)
    assert len(targets) > 9 and done.returncode == 0, done.stderr


def test_the_index_documents_every_exit_status() -> None:
    table = (ROOT / "docs/index.md").read_text().partition("## Exit status")[2].partition("##")[0]
    from perfsweep.pipelines.exits import ATTENTION, DONE, INTERRUPTED, SOME_FAILED, UNDECIDED

    mistake = 2
    assert set(map(int, re.findall(r"^\| (\d+) ", table, re.MULTILINE))) == {
        DONE,
        SOME_FAILED,
        mistake,
        ATTENTION,
        UNDECIDED,
        INTERRUPTED,
    }


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs/index.md").read_text()
    assert [
        page.name
        for page in (ROOT / "docs").glob("*.md")
        if page.name not in index and page.name != "index.md"
    ] == []


ONE_TOGGLE = {
    "check my_digits:MyDigits": ("--toggles", "pixels"),
    "sweep workload=my_digits:MyDigits": ("axes.pixels=[floats]", *SHORT),
}
"""What is left out of commands that would run shared toggles once more."""


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all pages are followed, from one fork server."""
    return tmp_path_factory.mktemp("start")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["quickstart.md", "workload.md", "extending.md", "script.md"])
def test_a_page_can_be_followed_from_top_to_bottom_in_an_empty_folder(
    name: str, start: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are written and commands run in the order of the page; what sweeps answer is not looked at."""
    for left in start.iterdir():
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    monkeypatch.chdir(start)
    ran = 0
    for block in blocks(ROOT / "docs" / name):
        if block.file:
            Path(block.file).parent.mkdir(parents=True, exist_ok=True)
            Path(block.file).write_text(block.text)
        for words in block.commands if block.language == "sh" else ():
            measures = words[1] == "sweep" and "dry_run=true" not in words
            perform(words, *ONE_TOGGLE.get(" ".join(words[1:]), SHORT if measures else ()))
            ran += 1
    assert ran >= 2
