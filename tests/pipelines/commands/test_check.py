"""How `perfsweep check` reads its words."""

from __future__ import annotations

from typing import Any

import pytest

from perfsweep.pipelines.commands import check as module
from perfsweep.workloads.errors import ConfigError


@pytest.mark.parametrize(
    ("values", "toggles", "only"),
    [(("measure.timeout_s=9", "workload.x=1"), None, None), ((), "amp, compile,", ["amp", "compile"])],
)
def test_what_was_typed_is_what_is_checked(
    values: tuple, toggles: str | None, only: list | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[Any]()
    monkeypatch.setattr(module.composition, "compose", lambda *words: words)
    monkeypatch.setattr(module, "run_check", lambda *words: asked.append(words) or 1)
    assert module.check("mine:Own", values, toggles) == 1
    assert asked == [(("run", ["workload=mine:Own", *values]), values, only)]


@pytest.mark.parametrize("toggles", ["", " ,"])
def test_no_toggle_is_not_all_of_them(toggles: str) -> None:
    with pytest.raises(ConfigError, match="--toggles holds no name"):
        module.check("mine:Own", (), toggles)
