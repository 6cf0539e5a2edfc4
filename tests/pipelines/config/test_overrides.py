"""Options given in Python arrive as they were given; and what perfsweep.yaml adds to those of a command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from toys.spinner import Spinner

from perfsweep.pipelines.config import composition, validation
from perfsweep.pipelines.config.overrides import as_overrides, of_folder
from perfsweep.pipelines.config.types import SweepCommand
from perfsweep.workloads.errors import ConfigError


def composed(**options: Any) -> SweepCommand:
    return validation.typed(composition.compose("sweep", as_overrides("sweep", options)), SweepCommand)


@pytest.mark.parametrize(
    ("options", "overrides"),
    [
        ({"rounds": 8, "precision": None}, ["measure.rounds=8", "measure.precision=null"]),
        ({"axes": {"slab_size": range(1, 3)}}, ["axes.slab_size=[1, 2]"]),
        ({"cluster": {"gpus": 1}, "dry_run": True}, ["cluster.gpus=1", "dry_run=true"]),
        ({"runs": Path("/tmp/my runs")}, ["runs='/tmp/my runs'"]),
        ({"workload": {"width": 4, "name": "digits"}}, ["workload=digits", "workload.width=4"]),
        ({"workload": {"name": Spinner, "size": 4}}, ["workload=toys.spinner:Spinner", "workload.size=4"]),
    ],
    ids=str,
)
def test_options_by_name_are_overrides(options: dict, overrides: list[str]) -> None:
    assert as_overrides("sweep", options) == overrides


@pytest.mark.parametrize(
    "value",
    [
        "--dataset=char --seed={seed}",
        r"C:\data\ ",
        "\\'",
        "",
        {"kind": "one_at_a_time", "levels": {"amp": ["off"]}},
    ],
    ids=str,
)
def test_a_value_is_read_as_it_was_given(value: Any) -> None:
    (text,) = as_overrides("sweep", {"workload": {"field": value}})
    assert OverridesParser.create().parse_override(text).value() == value


def test_an_option_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="round is unknown; choose from: workload, toggles"):
        as_overrides("sweep", {"workload": "digits", "round": 3})


@pytest.mark.parametrize("count", [3, 10_000])
def test_an_axis_of_many_numbers_arrives_and_hydras_grammar_is_spared_of_it(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the square of a list's length: of ten thousand numbers half a minute."""
    read, parse = list[str](), OverridesParser.parse_rule

    def noted(self: OverridesParser, text: str, rule: str) -> Any:
        read.append(text)
        return parse(self, text, rule)

    monkeypatch.setattr(OverridesParser, "parse_rule", noted)
    numbers = list(range(2, count + 2))
    assert composed(workload="digits", axes={"micro_batch": numbers}).axes == {"micro_batch": numbers}
    assert max(map(len, read)) < 1000


PARTS = ("workload", "measure", "cluster", "name")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def added(text: str, *typed: str) -> list[str]:
    """What a perfsweep.yaml in the current folder adds."""
    Path("perfsweep.yaml").write_text(text)
    return of_folder(PARTS, typed)


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ((), ["measure.rounds=7", "cluster=site", "++name=x"]),
        (("measure.rounds=9",), ["cluster=site", "++name=x"]),
        (("name=y", "measure.iterations=3"), ["measure.rounds=7", "cluster=site"]),
    ],
)
def test_what_is_typed_wins(here: Path, typed: tuple, kept: list[str]) -> None:
    text = "overrides:\n- measure.rounds=7\n- cluster=site\n- ++name=x\n- tracking.mode=online\n"
    assert added(text, *typed) == kept


@pytest.mark.parametrize(("text", "says"), [("overrides: [cluster]", "overrides must be a list")])
def test_what_cannot_be_meant_is_refused_with_the_file(here: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=f"perfsweep.yaml: {says}"):
        added(text)


def test_a_folder_of_configurations_comes_first_and_hides_none_of_ours(here: Path) -> None:
    own = here / "mine/cluster"
    own.mkdir(parents=True)
    (own / "site.yaml").touch()
    found = added("conf: mine\noverrides: [cluster=site]")
    assert found == [f"hydra.searchpath=[file://{(here / 'mine').resolve()}]", "cluster=site"]
    (own / "slurm.yaml").touch()
    with pytest.raises(ConfigError, match=r"would be hidden by perfsweep's own cluster/slurm\.yaml"):
        added("conf: mine")
