"""What was typed, spelled for Hydra's grammar and composed, or refused in words of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from perfsweep.pipelines.config import composition
from perfsweep.pipelines.config.external_workload import MOST_BYTES
from perfsweep.workloads.errors import ConfigError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "text", ["a.b", "a b", "HEAD~1", "x'y", "-1", "--lr=0.1", "1e3", "null", "true", "a,b", "3"]
)
def test_a_text_is_written_so_that_it_is_read_as_itself(text: str) -> None:
    (spelled,) = composition.spelled_out("run", [f"toggles.x={composition.written(text)}"])
    assert OverridesParser.create().parse_override(spelled).value() == text


@pytest.mark.parametrize(
    ("typed", "spelled"),
    [
        (["workload.x=a"], "++workload.x=a"),
        (["workload.args=--lr=0.1"], "++workload.args='--lr=0.1'"),
        (["workload.x=it's"], "++workload.x='it\\'s'"),
        (["toggles.x=[a,b~1, c]"], "++toggles.x=[a,'b~1',c]"),
        (["cluster.sbatch=[--mail-type=END,FAIL, -H]"], "cluster.sbatch=['--mail-type=END,FAIL','-H']"),
        (["sweep.references={fast:{}}"], "++sweep.references={fast:{}}"),
        (["sweep=demo"], "sweep=digits/demo"),
        (["workload=command"], "sweep=ablation"),
    ],
    ids=str,
)
def test_an_override_is_spelled_for_hydra(typed: list[str], spelled: str) -> None:
    assert composition.spelled_out("sweep", typed)[-1] == spelled


@pytest.mark.parametrize(
    ("command", "typed", "added"),
    [
        ("tune", ["workload=probe1d"], ["tune=probe1d"]),
        ("tune", ["workload=probe1d", "tune=none"], []),
        ("sweep", ["workload=probe1d"], ["sweep=probe1d/demo"]),
        ("sweep", ["workload=probe1d", "--cfg", "job"], ["sweep=probe1d/demo"]),
        ("sweep", ["workload=probe1d", "sweep=placebo"], []),
        ("sweep", ["workload=digits"], []),
    ],
)
def test_what_a_workload_brings_is_added_unless_it_was_said(command: str, typed: list, added: list) -> None:
    assert composition.spelled_out(command, typed)[len(typed) :] == added


def test_a_mistake_of_the_folders_file_names_the_file(folder: Path) -> None:
    (folder / "perfsweep.yaml").write_text("overrides: [measure.round=3]")
    with pytest.raises(ConfigError, match=r"perfsweep\.yaml: measure\.round is unknown; did you mean rounds"):
        composition.compose("sweep", ["workload=digits"])


BOMB = "a0: &a0 [0]\n" + "".join(f"a{n}: &a{n} [{f'*a{n - 1},' * 10}]\n" for n in range(1, 6))
"""A hundred thousand entries, each of which OmegaConf would make; twice as many lines never end."""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("amp: [bf16", "{folder}/toggles/own.yaml line 1 is no YAML: expected "),
        (
            "amp: bf16\n# caf\udce9",
            "{folder}/toggles/own.yaml line 2 is not in UTF-8. Save the file in UTF-8",
        ),
        (BOMB, "{folder}/toggles/own.yaml cannot be read: its aliases make it too large. Write out what"),
        (f"# {'long' * MOST_BYTES}", "{folder}/toggles/own.yaml cannot be read: it has more than 100,000"),
        ("defaults: none\n", "toggles/own.yaml: defaults must be a list of names, such as"),
        ("defaults: [nowhere]\n", "toggles/own.yaml: defaults: there is no toggles/nowhere.yaml next to it"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_what_is_wrong(folder: Path, text: str, says: str) -> None:
    file = folder / "toggles/own.yaml"
    file.parent.mkdir()
    file.write_text(text, errors="surrogateescape")
    with pytest.raises(ConfigError) as refused:
        composition.compose("run", [f"hydra.searchpath=['{folder.as_uri()}']", "toggles=own"])
    assert str(refused.value).startswith(says.format(folder=folder))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("measure.rounds=x", "measure.rounds=x is not a whole number"),
        ("axes=3", "axes=3 is no mapping: write axes.NAME=VALUE, one for each"),
        (
            "cluster.arm_resources=[{time_min: x}]",
            "cluster.arm_resources: time_min=x is not a whole number, or null",
        ),
        (
            "cluster.arm_resources=[{tim_min: 3}]",
            "cluster.arm_resources: tim_min is unknown; did you mean time_min? an entry has: levels, memory,",
        ),
    ],
)
def test_a_value_is_refused_by_its_field_and_what_that_takes(override: str, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        composition.compose("sweep", ["workload=digits", override])
    assert str(refused.value).startswith(says)
