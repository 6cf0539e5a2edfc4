"""What a person who leaves reads: what goes on without them, and what does not."""

from __future__ import annotations

import io
import shlex

import pytest
from rich.console import Console

from pipelines.execution.detach import detach


@pytest.mark.parametrize(
    ("left", "sentence"),
    [
        (0, "detached: the jobs go on. Come back"),
        (1, "submitted jobs go on, but 1 pack was not submitted yet and will not be until the same sweep"),
        (7, "submitted jobs go on, but 7 packs were not submitted yet and will not be until the same sweep"),
    ],
)
def test_packs_that_were_never_submitted_do_not_go_on(left: int, sentence: str) -> None:
    text = io.StringIO()
    detach(Console(file=text, width=300), "runs/toy", lambda: 0, left)
    assert sentence in " ".join(text.getvalue().split())
    assert "perfsweep wait runs/toy" in text.getvalue()


def test_a_command_to_come_back_with_is_one_line_however_narrow_the_terminal_is() -> None:
    text, folder = io.StringIO(), "/scratch/somebody/a long name/" + "runs/" * 12
    detach(Console(file=text, width=60), folder, lambda: 0)
    typed = [shlex.split(line) for line in text.getvalue().splitlines() if "perfsweep status" in line]
    assert typed == [["perfsweep", "status", folder]]
