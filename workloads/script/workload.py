"""A training script as it is: set-up ends at its first mark, and one iteration runs to the next."""

from __future__ import annotations

import dataclasses
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import CodeType
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from perfsweep.workloads import custom_toggles, snapshot
from perfsweep.workloads.api import Clock, Context, Evidence, Levels, Parity, Workload
from perfsweep.workloads.custom_toggles import CustomToggles
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.script import marks, ranks, seeding, tracker
from perfsweep.workloads.script.call_sites import CallSites
from perfsweep.workloads.script.changes.scene import Scene
from perfsweep.workloads.script.config import (
    ALLOW,
    AUTOMATIC,
    BACKWARD,
    FEWEST,
    FUNCTION,
    LEAST,
    LOADER,
    OPTIMIZER,
    SCRATCH,
    ScriptConfig,
)
from perfsweep.workloads.script.output import Output
from perfsweep.workloads.script.program import Ended, Program, alarm
from perfsweep.workloads.script.ranks import mean_over_ranks
from perfsweep.workloads.script.replaced import Change, Replacements, imported
from perfsweep.workloads.script.seeding import Seeding
from perfsweep.workloads.script.sight import Sight, look
from perfsweep.workloads.script.sources import Sources, refuse_no_python, script_file
from perfsweep.workloads.script.toggles import CHECKS, COLLECTOR, DATA, TOGGLES, apply, counters
from perfsweep.workloads.script.unseen import ByHand, OwnProcesses
from perfsweep.workloads.script.user_files import UserFiles, WriteRefused, cache_folders
from perfsweep.workloads.script.watched import Watched, flat, gradients_of

SHOWN = 3
"""Iterations after set-up that show what a script is made of; a look has no more."""


class Script(Workload):
    """A training script, unchanged. `configured` gives it its toggles, name and files."""

    Config = ScriptConfig
    toggles = TOGGLES
    on_request = (*Workload.on_request, COLLECTOR, DATA)
    checks = CHECKS
    paths = ("path", "folder")
    cadence_is_known = False
    custom: CustomToggles = custom_toggles.read({})
    iteration: str = ""
    sources: Sources
    streams: Callable[[], Any] = Output
    has_ended: bool = False
    """Whether the script has come to its end by itself."""

    @classmethod
    def planned(cls, config: ScriptConfig) -> ScriptConfig:
        """The configuration with the current folder, in which jobs elsewhere run the script too."""
        return dataclasses.replace(config, folder=str(Path(config.folder or ".").resolve()))

    @classmethod
    def configured(cls, config: ScriptConfig) -> type[Workload]:
        """The workload that a script is: read, not run.

        Raises
        ------
        ConfigError
            There is no such script, or one of its own toggles cannot be meant.
        """
        sources, custom = Sources(config), custom_toggles.read(config.toggles)
        own = {toggle.name for toggle in custom.toggles}
        return type(
            f"Script_{sources.script.stem}",
            (cls,),
            {
                "__module__": cls.__module__,
                "toggles": (*(toggle for toggle in TOGGLES if toggle.name not in own), *custom.toggles),
                "custom": custom,
                "sources": sources,
                "iteration": sources.iteration(config.iteration),
                "unit": "example" if config.units else "iteration",
                "title": sources.script.stem.lower(),
                "start": "exec" if sources.touches_environment else "fork",
                "ranks": config.ranks or 1,
                "files": sources.files,
                "origin": str(sources.script),
                "replaces": custom.replaces | {config.iteration.rpartition(":")[0]},
                "remarks": tracker.remarks(one for toggle in custom.toggles for one in toggle.levels),
            },
        )

    def setup(self, config: ScriptConfig, levels: Levels, context: Context) -> None:
        """Run the script to its first mark."""
        self.config, self.levels, self.context = config, levels, context
        self._undo = ExitStack()
        self._guard = self._guarded()
        output = self.streams()
        output.start(self._undo)
        seeding.move(context.seed, self._undo)
        self._watched = Watched(self._undo)
        self._seeding = Seeding()
        self._first_gradient: list[Tensor] | None = None
        self._fed = self._examples = 0
        file = script_file(config)
        sites = CallSites(self.sources.originals)
        self.scene = Scene(file.name, context.device, self._watched, self._undo, config.blocks, sites=sites)
        own = {toggle.name for toggle in self.custom.toggles}
        apply({name: level for name, level in levels.items() if name not in own}, self.scene)
        words, folder = self._arguments(), Path(config.folder)
        self._program = Program(file, words, folder, output.last_words, config.module)
        mark = marks.Every(config.every, self._program.mark)
        replacements = Replacements(self._replaced(mark), file.stem)
        code = self._loaded(file, replacements)
        marks.install(self.iteration, self._watched, mark, self._undo)
        if config.iteration == AUTOMATIC and self.iteration == OPTIMIZER:
            ByHand(self._watched, mark, self._updates_by_hand)
        self._own = OwnProcesses(context.scratch_dir.absolute(), self._guard.line)
        self._own.watch(self._undo)
        ranks.share_group(self._undo)
        ranked = context.world > 1 or config.ranks is not None
        variables = {**self._environment(), **(ranks.variables(context) if ranked else {})}
        module = self._program.start(code, variables)
        self._seeding.watch(self._undo)
        replacements.in_main(module, self._undo)
        replacements.install(self._undo)
        self._watched.fruitless = self._never_marked
        patience = self._patience()
        self._given_up = time.monotonic() + patience
        with alarm(patience, self._ring):
            self._advance()
        self._watched.end_search()
        self._seeding.end()
        self._watched.end_of_iteration.append(self._judge_first)
        self.cadence = self._watched.cadence
        if replacements.missing:
            raise ConfigError(_never_defined(file, sorted(replacements.missing)))
        for change in self.scene.at_first_mark:
            change()

    def _updates_by_hand(self) -> None:
        self.iteration = BACKWARD

    def _ring(self) -> None:
        """Give up a script that has not marked: once its time has passed, or as it trains elsewhere."""
        if self._own.have_updated or time.monotonic() >= self._given_up:
            self._never_marked()

    def _never_marked(self) -> None:
        raise ConfigError(self._why_never_marked())

    def _why_never_marked(self) -> str:
        script, ends = self.config.path, marks.ends_of(self.iteration)
        if self._own.have_updated:
            return self._own.told(script)
        if self.iteration == OPTIMIZER and self._watched.total("optimizer_steps") > 1:
            return f"{script} ran on {self._without_iterations()}"
        if self.iteration == OPTIMIZER and self._watched.optimizers:
            name = type(self._watched.optimizers[-1]).__name__
            return f"{script}: the first step of {name} took too long; give it more with measure.timeout_s"
        programs = "".join(f"; {line}" for line in [*self._guard.programs][:1])
        place = self._guard.line(sys._getframe()).rpartition("/")[2]
        return (
            f"{script} ran on without {ends}, and was at {place} in the end{programs}; say what ends an"
            " iteration with workload.iteration=backward, loader or package.module:function, or give it more"
            " time with measure.timeout_s"
        )

    def _judge_first(self) -> None:
        """Count examples where each of the first iterations brought some, else iterations.

        Raises
        ------
        ConfigError
            They cannot be iterations of a training.
        """
        counts = self._watched.counts
        if counts["iterations"] <= SHOWN and not self.config.units:
            self._fed += counts["examples"] > self._examples
            self._examples = counts["examples"]
            self.unit = "example" if self._fed == counts["iterations"] else "iteration"
        if counts["iterations"] == SHOWN and self.config.iteration == AUTOMATIC and self._is_implausible():
            raise ConfigError(_without_gradients(self.config.path, self._watched))

    def _is_implausible(self) -> bool:
        """Whether updates end iterations in which nothing was differentiated."""
        watched = self._watched
        return self.iteration == OPTIMIZER and not (watched.passes or watched.compiled.made)

    def _replaced(self, mark: marks.Mark) -> dict[str, Change]:
        """Replacements of the script's functions: those of levels, and the one that ends an iteration."""
        chosen = self.custom.chosen(self.levels)
        changes = {one: imported(other) for change in chosen for one, other in change.replace.items()}
        if ":" in self.iteration:
            changes[self.iteration] = lambda function: marks.after(function, mark)
        return changes

    def _guarded(self) -> UserFiles:
        """The guard of the user's files, which is inactive until the script runs."""
        context, sources = self.context, self.sources
        own = (context.scratch_dir.parent, context.cache_dir, *cache_folders())
        guarded = (Path(self.config.folder), sources.script.parent)
        guard = UserFiles(guarded, own, sources.originals)
        if self.config.writes != ALLOW:
            guard.watch(self._undo)
        if self.config.writes == SCRATCH:
            guard.redirect(context.scratch_dir.parent / "written", self._undo)
        return guard

    def _loaded(self, file: Path, replacements: Replacements) -> CodeType:
        """The script's code; its imports find the copies that were made of its sources."""
        kept = snapshot.current()
        if kept is not None:
            snapshot.install(kept, self._undo)
        text = snapshot.text_of(file, kept)
        snapshot.show_lines(file, text)
        refuse_no_python(file, text)
        return replacements.compiled(text, str(file))

    def _environment(self) -> dict[str, str]:
        """Variables that a script starts with, where no level of the arm sets them."""
        mode = tracker.mode_of(type(self).levels_of(self.levels).values())
        tracker.hold(mode, self._undo, self._watched.counts)
        if mode == tracker.OFF:
            return {tracker.MODE: mode}
        return {"WANDB_DIR": str(self.context.scratch_dir.absolute())}  # its files are another process's

    def sight(self) -> Sight:
        """What was seen of the script until its first mark, for the user."""
        ends = marks.ends_of(self.iteration)
        return look(self.scene, ends, self.unit, self._guard.told(), self.sources, self._seeding.missing)

    def _arguments(self) -> list[str]:
        fillings = {"{seed}": str(self.context.seed), "{scratch}": str(self.context.scratch_dir.absolute())}
        arguments = custom_toggles.with_arguments(
            shlex.split(self.config.args), self.custom.chosen(self.levels)
        )
        for name, value in fillings.items():
            arguments = [argument.replace(name, value) for argument in arguments]
        return arguments

    def _patience(self) -> float:
        """Seconds that the script has for its first mark."""
        deadline = self.context.deadline
        return max(1.0, 0.8 * (deadline - time.monotonic())) if deadline else 600.0

    def step(self, clock: Clock) -> None:
        """One iteration of the script."""
        self._watched.clock = clock
        self._advance()
        gradients = self._first_gradient
        if gradients is not None and not gradients and not self._watched.optimizers:  # it updates by hand
            gradients.append(gradients_of(self._watched.parameters()))

    def _advance(self) -> None:
        self._guard.active = True
        try:
            self._program.advance()
        except Ended as end:
            self.has_ended, self.length = True, self._watched.total("iterations")
            raise ConfigError(self._ended_early()) from end
        except WriteRefused as error:
            raise ConfigError(str(error)) from error  # every trial would ask for the same
        except ConfigError as error:
            refused = next(iter(self._guard.refused), "")
            if not refused or refused in str(error):
                raise
            raise ConfigError(f"{error}. Before that, {refused}") from error
        finally:
            self._guard.active = False
        self._watched.end_iteration()

    @property
    def to_epochs_end(self) -> int:
        """Iterations until the first one after an epoch's end; 0 where it has passed, or none is known."""
        epoch = self._watched.iterations_of_epoch
        return max(0, epoch + 1 - self._watched.total("iterations")) if epoch else 0

    def _ended_early(self) -> str:
        script, done = self.config.path, self._watched.total("iterations")
        if not done and self._own.have_updated:
            return self._own.told(script)
        if not done:
            return f"{script} ended {self._without_iterations()}"
        least = " ".join(f"measure.{name}={number}" for name, number in LEAST.items())
        less = f", or measure less: {least}" if done >= FEWEST else ""
        return (
            f"{script} ended by itself after {done} iterations, before it was measured; give it more to do"
            f" with workload.args{less}"
        )

    def _without_iterations(self) -> str:
        """What was seen instead of the end of an iteration, and what can be done."""
        seen, ends = self._watched.total, marks.ends_of(self.iteration)
        names = (BACKWARD, "backward_calls"), (LOADER, "batches")
        found = [name for name, count in names if seen(count) and name != self.iteration]
        kinds = f"say what ends an iteration with workload.iteration={' or '.join([*found, FUNCTION])}"
        if self.iteration == OPTIMIZER and (updates := seen("optimizer_steps")):
            return f"after {updates} steps of optimisers, in no order that came back; {kinds}"
        if found:
            return f"without {ends}; {kinds}"
        return (
            f"without {ends}, a backward pass or a batch; call perfsweep.mark() where an iteration ends, name"
            f" a function that ends it with workload.iteration={FUNCTION}, or measure whole runs of it with"
            " workload=command"
        )

    def progress(self) -> float:
        """Examples or iterations since `setup`."""
        counts = self._watched.counts
        if self.config.units:
            return self.config.units * counts["iterations"]
        if self.unit == "iteration":
            return float(counts["iterations"])
        return float(counts["examples"] * self.context.world)  # every rank sees its share

    def prepare_evidence(self) -> None:
        """Keep the gradients of the next iteration."""
        gradients: list[Tensor] = []
        self._first_gradient, until = gradients, self._watched.counts["iterations"] + 1

        def keep(one: Optimizer) -> None:
            if self._watched.counts["iterations"] < until:
                gradients.append(gradients_of(p for group in one.param_groups for p in group["params"]))

        self._watched.before_update.append(keep)

    def numbers(self) -> Mapping[str, float]:
        """The loss of the last iteration."""
        losses = self._watched.losses
        if not losses:
            return {}
        return {"last_loss": float(mean_over_ranks(losses[-1].float(), self.context.world))}

    def evidence(self) -> Evidence:
        """Losses, gradients of the first iteration, and parameters."""
        losses = self._watched.losses
        tensors = {
            "losses": mean_over_ranks(flat(losses), self.context.world),
            "parameters": flat(self._watched.parameters()),
        }
        if self._first_gradient is not None:
            tensors["first_gradient"] = torch.cat([torch.zeros(0), *self._first_gradient])
        return Evidence(tensors, {"iterations": float(self._watched.counts["iterations"])})

    def counters(self) -> Mapping[str, float]:
        """Batches, updates and backward passes that were seen, and what shows that levels act."""
        silenced = float(self._watched.total(tracker.SILENCED))
        return {**counters(self.scene), tracker.SILENCED: silenced}

    def data_digest(self) -> str:
        """SHA-256 of the first rows that were trained on; empty where a level of its own has others."""
        levels = [level for toggle in self.custom.toggles for level in toggle.levels]
        others = any(level.parity is Parity.STOCHASTIC or level.ranks > 1 for level in levels)
        return "" if others else self._watched.data_digest

    def close(self) -> None:
        """End the script, and put the process back as it was."""
        if hasattr(self, "_program"):
            self._guard.active = True
            self._program.stop()
            self._guard.active = False
        if hasattr(self, "_undo"):
            self._undo.close()


def _without_gradients(path: str, watched: Watched) -> str:
    updates, iterations = watched.counts["optimizer_steps"], watched.counts["iterations"]
    return (
        f"{path}: {iterations} iterations were seen that end with an optimiser's step, with {updates} updates"
        f" of {len(watched.optimizers)} optimisers, and no backward pass in any. Say what ends an iteration"
        " with workload.iteration=package.module:function;"
        f" workload.iteration={OPTIMIZER} takes them as they are."
    )


def _never_defined(file: Path, targets: list[str]) -> str:
    return (
        f"{', '.join(targets)}: neither defined at the top of {file.name} nor in a module that it imports"
        " before its first iteration; name it as module:function"
    )
