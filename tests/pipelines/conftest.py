"""Fixtures for publishing: a small recorded sweep, published or not."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from markupsafe import Markup
from recorded import Built, build, publish_here

from perfsweep.pipelines.publish.published import Published
from perfsweep.pipelines.report import svg
from perfsweep.pipelines.store.records import SweepFolder


@pytest.fixture(autouse=True, scope="module")
def pictures_are_for_tests_of_the_report(request: pytest.FixtureRequest) -> Iterator[None]:
    """A report has up to a dozen, which take most of its time."""
    with pytest.MonkeyPatch.context() as patch:
        if request.path.parent.name != "report":
            patch.setattr(svg, "drawn", lambda *chart: Markup())
        yield


@pytest.fixture
def sweep(tmp_path: Path) -> Built:
    """A sweep that nobody has published."""
    return build(tmp_path / "demo")


@pytest.fixture(scope="package")
def _published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Built, Published]:
    built = build(tmp_path_factory.mktemp("published") / "demo")
    return built, publish_here(built)


@pytest.fixture
def published(_published: tuple[Built, Published]) -> Built:
    """A published sweep, to look at."""
    return _published[0]


@pytest.fixture
def result(_published: tuple[Built, Published]) -> Published:
    """What publishing it said."""
    return _published[1]


@pytest.fixture
def copied(published: Built, tmp_path: Path) -> Built:
    """A published sweep, to change."""
    path = tmp_path / "copied"
    shutil.copytree(published.folder.path, path)
    return Built(SweepFolder(path), published.manifest)
