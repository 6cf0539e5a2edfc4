"""Folders that would be imported in the place of perfsweep's packages."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import perfsweep
from perfsweep import __main__ as door
from perfsweep import neighbours


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Where each package is found: ours, unless a test says otherwise."""
    places: dict[str, Any] = {}
    for name, file in neighbours.PACKAGES.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / file).touch()
        places[name] = SimpleNamespace(submodule_search_locations=[str(tmp_path / name)])
    monkeypatch.setattr(neighbours, "find_spec", places.get)
    return places


def test_packages_of_ours_and_what_is_no_package_are_fine_until_one_is_in_the_way(
    found: dict[str, Any], tmp_path: Path
) -> None:
    both = SimpleNamespace(submodule_search_locations=[str(tmp_path), str(tmp_path / "conf")])
    for name, spec in (
        ("conf", found["conf"]),
        ("conf", both),
        ("slurm", None),
        ("slurm", SimpleNamespace(submodule_search_locations=None)),
    ):
        found[name] = spec
        neighbours.refuse_shadows()
    found["slurm"] = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    with pytest.raises(ImportError, match="has the name of a package of perfsweep"):
        neighbours.refuse_shadows()


@pytest.mark.parametrize("name", neighbours.PACKAGES)
def test_a_folder_of_that_name_is_named_with_the_remedy(
    found: dict[str, Any], name: str, tmp_path: Path
) -> None:
    found[name] = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    with pytest.raises(ImportError) as refused:
        neighbours.refuse_shadows()
    says = f"{tmp_path} has the name of a package of perfsweep, and is imported in its place: rename the"
    assert str(refused.value).startswith(f"{says} folder, such as my_{name}, or")


def refusing() -> None:
    raise ImportError("a folder is in the way")


def test_the_command_line_ends_with_the_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(door, "refuse_shadows", refusing)
    with pytest.raises(SystemExit) as end:
        door.main()
    assert (end.value.code, capsys.readouterr().err) == (2, "perfsweep: a folder is in the way\n")


def test_so_does_the_first_use_of_the_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "refuse_shadows", refusing)
    with pytest.raises(ImportError, match="a folder is in the way"):
        perfsweep.Sweep  # noqa: B018 - importing is what is tested
    with pytest.raises(
        AttributeError, match=r"^perfsweep has no swep; it has: Comparison, Sweep, Watch, compare"
    ):
        perfsweep.swep  # noqa: B018
