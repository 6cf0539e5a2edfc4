"""Records -> W&B. The modules `wandb_*` are the only code that talks to it.

Records are the truth and W&B is a copy, made from them outside measured processes: run folders under
``runs/<sweep>/wandb``, or runs on a server. Publishing again changes nothing unless records changed, and
repairs what W&B lost. Whatever goes wrong in W&B is a warning: it never fails a sweep.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Mapping, Sequence

from perfsweep.pipelines.publish.offline import published_before
from perfsweep.pipelines.publish.pool import Crew
from perfsweep.pipelines.publish.published import Published, PublishedRun, warning
from perfsweep.pipelines.publish.runs import COMPARE, RunKey, SweepRuns
from perfsweep.pipelines.publish.server import address, probe
from perfsweep.pipelines.store.options import MODES, TrackingConfig
from perfsweep.pipelines.store.records import Manifest, SweepFolder

RUNS_PER_PROCESS = 8
"""Run folders for which another process is worth its start, which costs what four of them cost."""

REQUESTS_OF_A_RUN = 10
REQUESTS_OF_A_PROCESS = 5
REQUESTS_OF_A_COMPARISON = 32
"""What publishing asks of a server at most; rows that take more than five seconds need more."""

REQUESTS_PER_MINUTE = 200
"""What is counted on: W&B publishes no figure for its cloud, and answers 429 above its own."""

__all__ = ["Publication", "Published", "PublishedRun", "forecast", "publish", "target"]


def publish(
    folder: SweepFolder,
    packs: Sequence[str] | None = None,
    mode: str | None = None,
    patience_s: float | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Published:
    """Copy the finished rounds of a sweep, or of some of its packs, to W&B.

    Parameters
    ----------
    mode : instead of the one that the sweep was planned with
    patience_s : likewise, time for one run
    say : hears what will be asked of a server, before it is

    Raises
    ------
    RecordError
        There is no readable manifest.
    ConfigError
        A pack is not of this sweep.
    """
    return Publication(folder, packs, mode, patience_s, say).finish()


def forecast(runs: int, processes: int) -> str:
    """Say how much publishing so many runs asks of a server, and how long its limit makes that."""
    requests = REQUESTS_OF_A_COMPARISON + REQUESTS_OF_A_PROCESS * processes + REQUESTS_OF_A_RUN * runs
    minutes = math.ceil(requests / REQUESTS_PER_MINUTE)
    each = f"{REQUESTS_OF_A_RUN} for each of {runs} runs"
    limit = f"{minutes} minute{'' if minutes == 1 else 's'} at {REQUESTS_PER_MINUTE} a minute"
    return f"about {requests} requests at most, {each}: {limit}"


def target(tracking: TrackingConfig, shell: Mapping[str, str] = os.environ) -> tuple[str | None, str | None]:
    """The server to upload to, or None and one sentence why it has to be run folders."""
    if tracking.mode != "online":
        return None, None
    account = probe(tracking, shell)
    if account.problem:
        return (
            None,
            f"{account.problem}; run folders are written instead, and `perfsweep publish` uploads them later",
        )
    return address(tracking, shell), None


class Publication:
    """Publishing in processes of its own, which begin at once; `finish` waits for them."""

    def __init__(
        self,
        folder: SweepFolder,
        packs: Sequence[str] | None = None,
        mode: str | None = None,
        patience_s: float | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._folder, self._packs, self._say = folder, packs, say
        manifest = folder.read_manifest()
        instead = {
            name: value for name, value in (("mode", mode), ("patience_s", patience_s)) if value is not None
        }
        tracking = dataclasses.replace(manifest.sweep.tracking, **instead)
        self._mode = tracking.mode
        self._refusal: str | None = None
        self._crew: Crew | None = None
        self._keys: list[RunKey] = []
        self._here: dict[RunKey, PublishedRun] = {}
        self.notice: str | None = None
        if tracking.mode != "disabled":
            self._begin(manifest, tracking)

    def _begin(self, manifest: Manifest, tracking: TrackingConfig) -> None:
        if tracking.mode not in ("offline", "online"):
            unknown = f"tracking.mode={tracking.mode} is unknown"
            self._refusal = f"{unknown}, nothing was published; choose from: {', '.join(MODES)}"
            return
        server, self.notice = target(tracking)
        self._mode = "online" if server else "offline"
        try:
            self._runs = SweepRuns(self._folder, manifest)
        except OSError as error:
            why = f"{error.strerror} in {self._folder.wandb_dir}"
            self._refusal = (
                f"nothing was published, the records are untouched: {why}; fix this and publish again"
            )
            return
        self._keys = [key for key in self._runs.keys(self._packs) if key[0] != COMPARE]
        todo = self._keys if server else [key for key in self._keys if not self._before(key)]
        count = _processes(tracking, len(todo), online=server is not None)
        if server and todo:
            self._say(forecast(len(todo), count))
        self._crew = Crew(self._folder, server, count, tracking.patience_s)
        self._crew.hand_over(todo)

    def _before(self, key: RunKey) -> bool:
        """Whether a run folder is complete already: then no process has to be started for it."""
        content = self._runs.content(key)
        if content is None:
            return True  # its records cannot be understood, which is a problem noted already
        done = published_before(self._folder, content)
        if done:
            self._here[key] = done
        return done is not None

    def finish(self) -> Published:
        """Hand over the comparison, if there is one now, and wait for everything."""
        if self._crew is None:
            return Published((), self._refusal, self._mode, self.notice)
        if any(key[0] == COMPARE for key in self._runs.keys(self._packs)):
            key = (COMPARE, "")
            self._keys.append(key)
            if self._mode == "online" or not self._before(key):
                self._crew.hand_over([key])
        delivered = self._crew.finish()
        done = {**self._here, **delivered.runs}
        for key, why in delivered.failures.items():
            if content := self._runs.content(key):
                done[key] = content.delivered(None, 0, why)
        runs = tuple(done[key] for key in self._keys if key in done)
        problems = list(dict.fromkeys([*self._runs.problems, *delivered.problems]))
        remarks = dict.fromkeys(filter(None, (self.notice, *(run.remark for run in runs))))
        return Published(runs, warning(runs, problems), self._mode, "; ".join(remarks) or None)


def _processes(tracking: TrackingConfig, runs: int, *, online: bool) -> int:
    """How many processes publish: uploads wait for a server and gain by company, folders only cost CPU."""
    useful = runs if online else min(os.cpu_count() or 1, 1 + runs // RUNS_PER_PROCESS)
    return max(1, min(tracking.uploads, useful))
