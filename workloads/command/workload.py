"""A command line as a workload: one job is one run of the program."""

from __future__ import annotations

import hashlib
import resource
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from perfsweep.workloads import custom_toggles, snapshot
from perfsweep.workloads.api import Clock, Context, Evidence, Levels, Workload
from perfsweep.workloads.command import config as declared
from perfsweep.workloads.command import results
from perfsweep.workloads.command.config import CommandConfig, planned, title_of, toggles_of, unit_of
from perfsweep.workloads.command.program import Account, Program, Run, require_end
from perfsweep.workloads.command.version_folder import VersionFolder
from perfsweep.workloads.custom_toggles import CustomToggles


class Command(Workload):
    """Runs a program as often as it is asked to; see `CommandConfig`."""

    Config = CommandConfig
    toggles = ()
    checks = ()
    shape = "job"
    unit = "run"
    own_device = True
    custom: ClassVar[CustomToggles] = CustomToggles((), {})
    sources: ClassVar[results.Sources] = results.Sources()

    _program: Program | None = None
    _preparation: Program | None = None
    _last: Run | None = None

    @classmethod
    def configured(cls, config: CommandConfig) -> type[Workload]:
        """The workload of one command, with its toggles, checks and files.

        Raises
        ------
        ConfigError
            The command, a toggle or a piece of evidence cannot be meant.
        """
        words = declared.words(config.command, "workload.command")
        files = declared.program_files(words, Path(config.folder))
        custom, sources = custom_toggles.read(config.toggles), results.read(config.evidence)
        own: dict[str, Any] = {
            "__module__": cls.__module__,
            "__doc__": cls.__doc__,
            "custom": custom,
            "sources": sources,
            "toggles": toggles_of(custom),
            "checks": sources.checks,
            "files": files,
            "unit": unit_of(config.units, sources),
            "title": title_of(words, files),
        }
        return type(Command.__name__, (Command,), own)

    @classmethod
    def planned(cls, config: CommandConfig) -> CommandConfig:
        """The configuration with its folder made absolute."""
        return planned(config)

    def setup(self, config: CommandConfig, levels: Levels, context: Context) -> None:
        """Find the program, and prepare its first run."""
        self._config, self._deadline = config, context.deadline
        self._folder, self._scratch = Path(config.folder), context.scratch_dir.absolute() / "run"
        kept = snapshot.current()
        version = None
        if kept and kept.is_version:
            version = VersionFolder.build(kept, self._folder, context.scratch_dir.absolute() / "version")
            self._folder = version.of(self._folder)
        values = {"seed": str(context.seed), "scratch": str(self._scratch)}
        words = declared.arm_words(config.command, self.custom, levels, values)
        env = declared.of_arm(self.levels_of(levels).values(), self.custom.chosen(levels), values)
        if version:
            words, env = version.words(words), version.environment(env)
        self._files = {
            results.shown_name(name): self._folder / declared.filled(name, values)
            for name in self.sources.files
        }
        self._program = Program(words, env, self._folder)
        if config.prepare:
            self._preparation = self._prepared_by(config.prepare, env, values)
        self._account = Account()
        self.reset()

    def _prepared_by(self, text: str, env: Mapping[str, str], values: Mapping[str, str]) -> Program:
        words = declared.words(text, "workload.prepare")
        return Program(
            [declared.filled(word, values) for word in words], env, self._folder, "workload.prepare"
        )

    def step(self, clock: Clock) -> None:
        """Run the program once.

        Raises
        ------
        RunFailed
            It ended with another status than it should, or not in time.
        """
        assert self._program is not None
        self._started_ns = time.time_ns()
        run = self._program.run(self._latest(), self.sources.output)
        self._account.add(run)
        self._last = run
        require_end(run, self._config.expected_status)

    def _latest(self) -> float:
        """The `time.monotonic` at which a run that starts now must have ended."""
        limits = [self._deadline, time.monotonic() + self._config.timeout if self._config.timeout else None]
        return min((limit for limit in limits if limit is not None), default=float("inf"))

    def done(self) -> bool:
        """Whether the program has run."""
        return self._last is not None

    def reset(self) -> None:
        """Prepare the next run: none of it is timed."""
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.mkdir(parents=True)
        if self._preparation:
            require_end(self._preparation.run(self._latest()), 0)
        self._before = {name: results.file_state(file) for name, file in self._files.items()}
        self._last = None

    def progress(self) -> float:
        """What the run has done, as `units` says."""
        if self._last is None:
            return 0.0
        units = self._config.units
        return float(self._reported()[units] if units in self.sources.reported else units)

    def _reported(self) -> dict[str, float | np.ndarray]:
        return results.from_output(self.sources, self._last.output) if self._last else {}

    def numbers(self) -> dict[str, float]:
        """Numbers that the last run reported."""
        return _numbers(self._reported())

    def evidence(self) -> Evidence:
        """Everything that the last run reported, and the files that it wrote."""
        found: dict[str, Any] = dict(self._reported())
        for name, file in self._files.items():
            results.require_fresh(file, self._before[name], self._started_ns)
            found |= results.read_file(file, name)
        if self.sources.output and self._last:
            found[results.OUTPUT] = np.frombuffer(self._last.output.digest(), np.uint8)
        numbers = _numbers(found)
        return Evidence({name: found[name] for name in found if name not in numbers}, numbers)

    def counters(self) -> Mapping[str, float]:
        """Exit status, bytes written, CPU seconds and peak memory of a run."""
        return self._account.counters()

    def child_usage(self) -> resource.struct_rusage:
        """What all runs so far have used."""
        return self._account.usage()

    def data_digest(self) -> str:
        """SHA-256 of the files that `data` names."""
        return digest([self._folder / name for name in self._config.data]) if self._config.data else ""

    def close(self) -> None:
        """End whatever still runs."""
        for program in (self._program, self._preparation):
            if program is not None:
                program.close()


def _numbers(found: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in found.items() if isinstance(value, float)}


def digest(files: Sequence[Path]) -> str:
    """SHA-256 over the contents of files, in their order."""
    total = hashlib.sha256()
    for file in files:
        with file.open("rb") as content:
            total.update(hashlib.file_digest(content, "sha256").digest())
    return total.hexdigest()
