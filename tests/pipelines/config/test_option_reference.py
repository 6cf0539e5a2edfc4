"""The reference of the options is complete, true and light."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest
from hydra import compose, initialize_config_module
from hydra.core.global_hydra import GlobalHydra

from perfsweep.fields import default_of
from perfsweep.pipelines.config import names, option_reference, validation
from perfsweep.pipelines.config.types import COMMANDS, DesignConfig

PAGE = Path(__file__).parents[3] / "docs" / "options.md"

DECLARED = {
    **{f"sweep.designs[].{one.name}": one for one in fields(DesignConfig)},
    **{name: one for command in COMMANDS for name, one in option_reference.options(command)},
}


def test_the_page_of_options_is_up_to_date() -> None:
    assert PAGE.read_text() == option_reference.page(), (
        "python -m perfsweep.pipelines.config.option_reference > docs/options.md"
    )


@pytest.mark.parametrize("name", sorted(DECLARED))
def test_every_option_has_one_sentence(name: str) -> None:
    sentence = DECLARED[name].metadata.get("description", "")
    assert sentence.endswith(".")
    assert ". " not in sentence


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_the_help_of_a_command_names_each_of_its_options_with_its_default(command: str) -> None:
    lines = {line.split()[0] for line in option_reference.help_text(command).splitlines() if line.strip()}
    for name, declared in option_reference.options(command):
        default = names.groups(command).get(name, option_reference.shown_default(declared))
        assert f"{name}={default}".split()[0] in lines


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_a_default_in_the_reference_is_what_hydra_composes_without_overrides(command: str) -> None:
    validation.register()
    GlobalHydra.instance().clear()
    with initialize_config_module("perfsweep.conf", version_base="1.3"):
        values = validation.typed(compose(command, OF_NO_WORKLOAD.get(command, [])), COMMANDS[command])
    for group in fields(values):
        declared = default_of(group)
        if is_dataclass(declared) and group.name != "sweep":
            assert getattr(values, group.name) == declared, group.name


OF_NO_WORKLOAD = {"sweep": ["sweep=ablation"], "doctor": ["cluster=local"]}
"""Defaults that are named in the reference as files to choose from have values of their own."""


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from perfsweep.pipelines.config.option_reference import help_text; help_text('sweep');"
        "print({'torch', 'numpy', 'hydra', 'omegaconf', 'pydantic'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "set()", done.stderr


def test_a_mistake_in_an_option_is_answered_without_torch() -> None:
    code = (
        "import sys; from perfsweep.pipelines.config import validation; validation.register()\n"
        "from hydra import compose, initialize_config_module\n"
        "try:\n"
        "    with initialize_config_module('perfsweep.conf', version_base='1.3'):\n"
        "        compose('sweep', ['measure.ronds=3'])\n"
        "except Exception as error:\n"
        "    print('ronds' in str(error), {'torch', 'numpy', 'pydantic'} & set(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "True set()", done.stderr


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        ("keep=null", "Folder.", ["  keep=null                         Folder."]),
        ("keep=null", "", ["  keep=null"]),
        ("keep=null", "one two " * 9, ["  keep=null", "", ""]),
        ("measure.evidence_iterations=1000000", "Some.", ["  measure.evidence_iterations=1000000", ""]),
    ],
    ids=["short", "no words", "long words", "a long name"],
)
def test_an_entry_of_the_help_has_its_name_on_the_left_and_its_words_in_their_order(
    name: str, text: str, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    found = option_reference._entry(name, text)
    assert len(found) == len(lines) and found[0].startswith(f"  {name}")
    assert " ".join(" ".join(found).split()) == f"{name} {text}".strip()
    column = len(option_reference._entry("x", "word")[0]) - len("word")
    assert all(line.startswith(" " * column) and len(line) <= column + 30 for line in found[1:])
