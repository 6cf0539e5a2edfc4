"""What is said of what was published: the command that comes next can be copied into a shell."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from pipelines.publish.published import Published, PublishedRun, published_line
from pipelines.store.records import SweepFolder


@pytest.mark.parametrize("folder", ["runs/digits-demo", "my runs/it's one"])
def test_the_command_that_uploads_is_quoted(folder: str) -> None:
    run = PublishedRun("a", "baseline", "p000", "x-a-p000", "there", 5, 5, "written")
    line = published_line(Published((run,)), SweepFolder(Path(folder)))
    assert shlex.split(line.split("`")[1]) == ["perfsweep", "publish", folder]
