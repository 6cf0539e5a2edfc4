"""The process that looks at a script: what it answers, and whom it tells how far it is."""

from __future__ import annotations

import json
import threading
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perfsweep.pipelines.check import look_process
from perfsweep.pipelines.store.trial_files import read_evidence, read_status
from perfsweep.workloads.api import Evidence
from perfsweep.workloads.errors import ConfigError


@dataclass
class Sight:
    loaders: int


class Script:
    """Counts four batches for each iteration, the first of them in set-up."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.done, self.stages = folder, 1, list[str | None]()
        self.to_epochs_end, self.ends_after, self.over = 0, None, threading.Event()

    def step(self, clock: object) -> None:
        self.stages.append(read_status(self.folder))
        for daemon in (False, True) if self.done == 1 else ():
            name = f"{'left to itself' if daemon else 'waited for'}"
            threading.Thread(target=self.over.wait, name=name, daemon=daemon).start()
        if self.has_ended:
            raise ConfigError("the script ended")
        self.done += 1

    def counters(self) -> dict[str, float]:
        return {"batches": 4.0 * self.done}

    def progress(self) -> float:
        return 32.0 * self.done

    def data_digest(self) -> str:
        return "da7a"

    def sight(self) -> Sight:
        return Sight(2)

    @property
    def has_ended(self) -> bool:
        return self.ends_after is not None and self.done > self.ends_after

    def evidence(self) -> Evidence:
        return Evidence({}, {"loss": 0.5})


@pytest.fixture
def look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(look_process, "begin_evidence", lambda workload: None)

    def run(attempt: int = 0, **own: int) -> Script:
        script = Script(tmp_path)
        vars(script).update(own)
        scene = SimpleNamespace(workload=script, setup_s=1.5)
        monkeypatch.setattr(look_process, "set_up", lambda *about: nullcontext(scene))
        try:
            look_process.run(SimpleNamespace(attempt=attempt), tmp_path, 0)  # type: ignore[arg-type]
        finally:
            script.over.set()
        return script

    return run


def test_what_was_seen_is_told_for_each_iteration(look: Any, tmp_path: Path) -> None:
    script = look()
    answer = json.loads((tmp_path / look_process.ANSWER).read_text())
    assert len(answer.pop("times_ns")) == look_process.ITERATIONS
    assert answer == {
        "setup_s": 1.5,
        "units": 32.0,
        "counts": {"batches": 4.0},
        "data": "da7a",
        "sight": {"loaders": 2},
        "ended_after": 0,
        "to_epochs_end": 0,
        "threads": ["waited for"],
    }
    assert script.stages[:3] == ["iteration 1 of 3", "iteration 2 of 3", "iteration 3 of 3"]
    assert read_evidence(tmp_path).numbers == {"loss": 0.5}


@pytest.mark.parametrize(
    ("own", "done", "ended_after"),
    [
        ({"to_epochs_end": 4}, 8, 0),
        ({"to_epochs_end": 4, "attempt": 1}, 4, 0),
        ({"to_epochs_end": 10**9}, 4, 0),
        ({"to_epochs_end": 4, "ends_after": 5}, 6, 6),
        ({"to_epochs_end": 0}, 4 + look_process.AHEAD, 0),
    ],
    ids=["first", "second", "endless", "ended", "no epoch"],
)
def test_the_first_look_goes_past_the_end_of_an_epoch_and_says_if_the_script_ends_there(
    own: dict[str, int],
    done: int,
    ended_after: int,
    look: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("AHEAD_S", "NEEDED_S"):  # however busy the machine is
        monkeypatch.setattr(look_process, name, 1e9)
    script = look(**own)
    assert script.done == done
    answer = json.loads((tmp_path / look_process.ANSWER).read_text())
    assert (answer["ended_after"], answer["to_epochs_end"]) == (ended_after, own["to_epochs_end"])


@pytest.mark.parametrize(("needed_s", "ahead_s", "more"), [(1e9, -1.0, look_process.NEEDED), (-1.0, 1e9, 0)])
def test_a_script_of_no_epoch_is_followed_longer_for_the_iterations_that_a_trial_needs(
    needed_s: float, ahead_s: float, more: int, look: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look_process, "NEEDED_S", needed_s)
    monkeypatch.setattr(look_process, "AHEAD_S", ahead_s)
    assert look().done == 1 + look_process.ITERATIONS + more
