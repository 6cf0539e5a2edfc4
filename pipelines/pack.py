"""One allocation: evidence and counting for each arm, then rounds of timing trials in fresh processes.

Run as ``python -m pipelines.pack <sweep folder> <pack>``. SIGTERM, SIGINT and SIGUSR2 end it after the running trial
has been ended; finished rounds stay, and starting the pack again continues with the first unfinished one.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from types import FrameType

from pipelines.measure import environment
from pipelines.progress import Found, read_progress
from pipelines.records import (
    Arm,
    Event,
    Kind,
    Manifest,
    Outcome,
    Pack,
    SweepFolder,
    TrialRecord,
    TrialSpec,
    read_record,
    write_record,
    write_spec,
)
from pipelines.spawn import Exec, ForkServer, fix_imports, wait
from workloads import registry
from workloads.errors import RecordError

TRY_AGAIN, CANNOT_WRITE = 75, 74
"""Exit status of a pack that a signal ended, and of one whose folder cannot be written (see sysexits)."""


class Interrupted(BaseException):
    """A signal asked the pack to end; like KeyboardInterrupt it passes every handler of ordinary mistakes."""


class PackRun:
    """The trials of one pack, one after the other."""

    def __init__(self, folder: SweepFolder, manifest: Manifest, pack: Pack, retry: frozenset[Outcome] = frozenset()) -> None:
        self.folder = folder
        self.manifest = manifest
        self.pack = pack
        self.retry = retry
        self._device = environment.device_facts()
        self.progress = read_progress(folder, manifest, environment.comparison_keys(self._device))
        fix_imports(manifest.sweep.import_paths)
        cls = registry.find(manifest.sweep.workload)
        self._toggles = {toggle.name: toggle for toggle in cls.toggles}
        self._starter = Exec() if pack.start == "exec" else ForkServer([cls.__module__])

    def run(self) -> None:
        """Do what is not done yet."""
        for arm_id in self.pack.arms:
            for kind in (Kind.EVIDENCE, Kind.COUNTING):
                self.support(self.manifest.arm(arm_id), kind)
        for number in self.progress.unfinished_rounds(self.pack, self.retry):
            self._round(number)

    def single(self) -> Found:
        """Measure the only arm of the pack once more, whatever is there already."""
        return self._trial(self.manifest.arms[0], Kind.TIMING, 0, self.progress.next_attempt(self.pack.id, 0))

    def support(self, arm: Arm, kind: Kind) -> None:
        """The trials that give no times, once for each arm of the sweep."""
        done = self.progress.other.get((arm.id, kind))
        if done and done.record.outcome not in self.retry:
            return
        if kind is Kind.COUNTING and arm.id in self.progress.retired(self.pack.id, [arm.id]):
            return
        attempt = 1 + max(
            (number for _, pack, stage, number in self.folder.trial_dirs(arm.id) if stage == kind.value), default=-1
        )
        self._trial(arm, kind, None, attempt)

    def _round(self, number: int) -> None:
        attempt = self.progress.next_attempt(self.pack.id, number)
        for arm_id in self.pack.orders[number]:
            if arm_id not in self.progress.retired(self.pack.id, [arm_id]) or self.retry:
                self._trial(self.manifest.arm(arm_id), Kind.TIMING, number, attempt)

    def _trial(self, arm: Arm, kind: Kind, number: int | None, attempt: int) -> Found:
        sweep = self.manifest.sweep
        levels = [self._toggles[name].level(value) for name, value in arm.levels.items()]
        env = {name: value for level in levels for name, value in level.env.items()}
        spec = TrialSpec(
            sweep=sweep.name,
            workload=sweep.workload,
            config=sweep.config,
            arm=arm,
            kind=kind,
            pack=self.pack.id,
            round=number,
            attempt=attempt,
            measure=sweep.measure,
            code=sweep.code,
            cache_dir=str(self.folder.cache_dir.absolute()),
            world=max((level.processes(self._device) for level in levels), default=1),
        )
        folder = self.folder.trial_dir(spec)
        started = time.time()
        ending = wait(self._starter.start(write_spec(folder, spec), spec.world, env), sweep.measure.timeout_s)
        record = _record_of(folder)
        if record is None:
            outcome, failure = (ending.outcome, ending.failure) if ending else (Outcome.FAILED, None)
            record = TrialRecord.of(spec, started, outcome=outcome, failure=failure)
            write_record(folder, record)
        found = Found(folder, record)
        self._note(found)
        return found

    def _note(self, found: Found) -> None:
        record = found.record
        self.progress.add(found)
        reason = _reason(record)
        event = Event(
            time=time.time(),
            arm=record.arm,
            kind=record.kind,
            round=record.round,
            outcome=record.outcome,
            seconds=record.ended - record.started,
            reason=reason,
        )
        self.folder.append_event(self.pack.id, event)


def _reason(record: TrialRecord) -> str:
    if record.failure is None:
        return ""
    ours = record.outcome in (Outcome.UNSUPPORTED, Outcome.TIMEOUT)
    return record.failure.message if ours else f"{record.failure.type}: {record.failure.message}"


def _record_of(folder: Path) -> TrialRecord | None:
    try:
        return read_record(folder)
    except RecordError:
        return None  # a damaged record is no record: the ending of the process says what happened


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise Interrupted(signal.Signals(number).name)


def main(arguments: list[str]) -> int:
    """Run a pack; status 0 when it is finished."""
    folder = SweepFolder(arguments[0])
    manifest = folder.read_manifest()
    retry = frozenset(Outcome(word) for word in arguments[2:])
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
        signal.signal(number, _interrupt)
    try:
        PackRun(folder, manifest, manifest.pack(arguments[1]), retry).run()
    except Interrupted as signal_name:
        print(f"{signal_name}: stopped after the last finished round; start the sweep again to continue", flush=True)
        return TRY_AGAIN
    except OSError as error:
        print(
            f"{error.filename or folder.path}: {error.strerror}; finished rounds are kept: mend this and start the sweep again",
            flush=True,
        )
        return CANNOT_WRITE
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
