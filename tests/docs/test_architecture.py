"""The page on the architecture shows the packages that are there, in the order that the linter holds."""

from __future__ import annotations

import re
import tomllib

from documented import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text()
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]


def layers() -> list[str]:
    """The packages of the pipelines from the top, as the contract has them."""
    contract = next(one for one in CONTRACTS if one.get("containers") == ["perfsweep.pipelines"])
    return [name.strip(" ()") for layer in contract["layers"] for name in layer.split("|")]


def shown() -> list[str]:
    """The packages of the pipelines in the order of the page's table."""
    table = PAGE.partition("## Packages of the pipelines")[2].partition("## Data flow")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    return [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]


def test_the_page_lists_the_layers_in_the_order_of_the_contract() -> None:
    assert shown() == layers()


def test_every_package_and_module_on_top_of_the_pipelines_is_a_layer() -> None:
    there = {path.stem for path in (ROOT / "pipelines").iterdir() if path.suffix == ".py" or path.is_dir()}
    assert there - {"__init__", "__pycache__"} == set(layers())


def test_the_contract_is_exhaustive_so_that_a_new_package_must_be_placed() -> None:
    contract = next(one for one in CONTRACTS if one.get("containers") == ["perfsweep.pipelines"])
    assert contract["exhaustive"] is True


def test_packages_that_the_data_flow_names_exist() -> None:
    flow = PAGE.partition("## Data flow")[2].partition("## Workloads")[0]
    named = re.findall(r"^   (\w+)/ -", flow, re.MULTILINE)
    assert len(named) >= 8
    assert set(named) <= set(layers())
