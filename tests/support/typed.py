"""Commands that are typed into the test process."""

from __future__ import annotations

import pytest

from perfsweep.pipelines import cli


def ended(*words: str) -> int:
    """The exit status of a command."""
    with pytest.raises(SystemExit) as end:
        cli.main(list(words))
    return int(end.value.code or 0)
