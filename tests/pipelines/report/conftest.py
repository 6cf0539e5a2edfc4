"""A real browser for the tests of pages."""

from __future__ import annotations

import os
from collections.abc import Iterator

import browser as browsing
import pytest
from browser import Browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if missing := browsing.missing():
        if "browser" in os.environ.get("PERFSWEEP_NO_SKIP", ""):
            pytest.fail(missing)
        pytest.skip(missing)
    with browsing.running(tmp_path_factory.mktemp("browser")) as started:
        yield started
