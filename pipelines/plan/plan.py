"""Configuration and designs -> arms -> packs -> manifest. Nothing runs here."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from perfsweep.pipelines.config import validation
from perfsweep.pipelines.config.types import DesignConfig, MeasureConfig, SweepCommand
from perfsweep.pipelines.plan import designs
from perfsweep.pipelines.plan.added_arms import added_effect, ideal_arm, placebo
from perfsweep.pipelines.plan.arms import Space
from perfsweep.pipelines.plan.designs import Assignment, Design, PlannedEffect
from perfsweep.pipelines.plan.foreseen import refuse_target
from perfsweep.pipelines.plan.packs import packs_of, refuse_placement
from perfsweep.pipelines.plan.provided import Cast, find_provided
from perfsweep.pipelines.store.records import Arm, Effect, Keep, Manifest, Pack, Refused, Sweep
from perfsweep.pipelines.store.schema import declare
from perfsweep.pipelines.trial.identity import arm_id, code_digest
from perfsweep.workloads import registry
from perfsweep.workloads.api import Declaration, Device, Workload
from perfsweep.workloads.errors import ConfigError


def make_plan(command: SweepCommand, device: Device) -> Manifest:
    """The manifest of a sweep.

    Raises
    ------
    ConfigError
        The workload, a toggle, a level, a combination or a design cannot be used.
    """
    own, config = load_workload(command.workload)
    provided = find_provided(own, command)
    cls = provided.onto(own) if provided else own
    space = Space(cls.toggles_named(_names(command)), config, device)
    code = code_digest(cls)
    name = str(command.workload["name"])
    references = _references(space, command)
    planned, refused = _designed(space, command, references)
    cast = Cast(provided, space, cls, command, device) if provided else None

    def made(levels: Assignment) -> Arm:
        if cast:
            return cast.arm(levels, name, config)
        return Arm(id=arm_id(name, config, levels, code), label=space.label(levels), levels=levels)

    arms = _Arms(made)
    if cast:
        cast.look([*references.values(), *(levels for effect in planned for levels in effect.arms)])
        planned, refused = cast.keep_runnable(planned, refused, made)
    named = {reference: arms.of(levels).id for reference, levels in references.items()}
    unique = {effect.id: effect for effect in (identified(effect, arms.of) for effect in planned)}
    always = list(dict.fromkeys(named.values()))
    base = arms.by_id[always[0]]
    placebos = [arms.add(placebo(base, number)) for number in range(1, command.measure.placebo + 1)]
    effects = (*unique.values(), *(added_effect(copy, base) for copy in placebos))
    if command.measure.stall:
        ideal = ideal_arm(cls, base, name, config, code)
        if isinstance(ideal, Arm):
            effects += (added_effect(arms.add(ideal), base),)
        else:
            refused.append(ideal)
    always += [copy.id for copy in placebos]
    refuse_target(command, cls)
    packs = packs_of(effects, always, arms.by_id, cls, command, by_exec=cast is not None and cast.by_exec)
    everywhere = dataclasses.replace(device, count=device.count * command.cluster.nodes)
    refuse_placement(command, max(cls.processes(arm.levels, everywhere) for arm in arms.by_id.values()))
    sweep = _sweep(
        command,
        cls,
        space,
        code,
        arms.by_id.values(),
        name=sweep_name(command, cls),
        references=named,
        tracking=command.tracking,
        report=command.report,
        price=command.cluster.price,
        parts=command.sweep.parts,
        versions=cast.versions if cast else (),
    )
    return Manifest(
        sweep=sweep, arms=tuple(arms.by_id.values()), effects=effects, packs=packs, refused=tuple(refused)
    )


class _Arms:
    """The arms of a plan by their identity; each arm is made once, also the base of thousands of effects."""

    def __init__(self, make: Callable[[Assignment], Arm]) -> None:
        self.by_id: dict[str, Arm] = {}
        self._make, self._known = make, dict[tuple[Any, ...], Arm]()

    def of(self, levels: Assignment) -> Arm:
        """The arm of these levels."""
        chosen = tuple(levels.items())
        if chosen not in self._known:
            self._known[chosen] = self.add(self._make(levels))
        return self._known[chosen]

    def add(self, arm: Arm) -> Arm:
        """Add an arm, unless one of the same identity is there; returns the one that is kept."""
        return self.by_id.setdefault(arm.id, arm)


def single_arm(command: SweepCommand, device: Device) -> Manifest:
    """The manifest of one arm measured once.

    Raises
    ------
    ConfigError
        The workload or its toggles cannot be used.
    """
    cls, config = load_workload(command.workload)
    space = Space(cls.toggles_named(command.toggles), config, device)
    code = code_digest(cls)
    name = str(command.workload["name"])
    levels = space.legal(command.toggles)
    arm = Arm(id=arm_id(name, config, levels, code), label=space.label(levels), levels=levels)
    start = "exec" if cls.needs_exec(levels) else "fork"
    own = {"name": f"run-{folder_name(cls, name)}", "references": {arm.label: arm.id}}
    sweep = _sweep(command, cls, space, code, [arm], **own)
    pack = Pack(id="p000", orders=((arm.id,),), start=start)
    return Manifest(sweep=sweep, arms=(arm,), effects=(), packs=(pack,))


def _names(command: SweepCommand) -> set[str]:
    """Every word of a sweep that may be a toggle's name."""

    def words(value: Any) -> Iterator[str]:
        if isinstance(value, Mapping):
            yield from map(str, value)
            value = list(value.values())
        if isinstance(value, (list, tuple)):
            for one in value:
                yield from words(one)
        elif isinstance(value, str):
            yield value

    return set(words([command.toggles, command.axes, dataclasses.asdict(command.sweep)]))


def _measure(command: SweepCommand, space: Space) -> MeasureConfig:
    """The options of `measure`, without the allocator's where a toggle of the sweep decides about it."""
    owned = any(toggle.owns_allocator for toggle in space.toggles.values())
    return dataclasses.replace(command.measure, allocator="system") if owned else command.measure


def _keep(command: SweepCommand, cls: type[Declaration]) -> Keep | None:
    if command.keep is None:
        return None
    if registry.find(str(command.workload["name"])).keep is Workload.keep:
        raise ConfigError(f"keep={command.keep}: {cls.__name__} has nothing to keep; see perfsweep describe")
    folder = str(Path(command.keep).expanduser().absolute())
    return Keep(folder=folder, iterations=command.keep_iterations)


def _sweep(
    command: SweepCommand, cls: type[Declaration], space: Space, code: str, arms: Iterable[Arm], **own: Any
) -> Sweep:
    root = registry.import_root(cls)
    return Sweep(
        workload=str(command.workload["name"]),
        config=dataclasses.asdict(space.config),
        code=code,
        measure=_measure(command, space),
        keep=_keep(command, cls),
        nodes=command.cluster.nodes,
        ntasks_per_node=command.cluster.ntasks_per_node,
        import_paths=(str(root),) if root else (),
        origin=registry.origin(cls),
        sources=tuple(map(str, registry.from_outside(cls))),
        declared=declare(cls, space.config, arms),
        **own,
    )


def alone(manifest: Manifest, command: SweepCommand) -> Manifest:
    """A manifest of one arm that is not timed: its command's name and tracking, and nothing to run."""
    own = {"name": sweep_name(command, load_workload(command.workload)[0]), "tracking": command.tracking}
    return manifest.model_copy(update={"sweep": manifest.sweep.model_copy(update=own), "packs": ()})


def load_workload(given: Mapping[str, Any]) -> tuple[type[Declaration], Any]:
    """The workload class and its typed configuration from the `workload` part of the configuration."""
    values = dict(given)
    cls = registry.declared(str(values.pop("name")))
    config = cls.planned(validation.workload_config(cls, values))
    return cls.configured(config), config


def sweep_name(command: SweepCommand, cls: type[Declaration]) -> str:
    """The folder of a sweep under `runs`.

    Raises
    ------
    ConfigError
        The name is no plain folder name: other commands look only for folders directly under `runs`.
    """
    given, field = (command.sweep.name, "sweep.name") if command.name is None else (command.name, "name")
    plain = Path(given).name == given and given not in ("", "..") and given.isprintable()
    if not plain or len(given.encode()) > 200:
        raise ConfigError(f"{field}={given[:40]!r} is no name of one folder; runs=FOLDER says where they lie")
    return command.name or f"{folder_name(cls, str(command.workload['name']))}-{given}"


def folder_name(cls: type[Declaration], workload: str) -> str:
    """A name for folders: the workload's own title, or the class of ``module:Class``, in lower case."""
    return cls.title or workload.replace(":", ".").rsplit(".", 1)[-1].lower()


def _references(space: Space, command: SweepCommand) -> dict[str, Assignment]:
    """Named reference arms; their levels override the toggles chosen for the whole sweep."""
    named = command.sweep.references or {"naive": {}}
    return {name: space.legal({**command.toggles, **levels}) for name, levels in named.items()}


def _designed(
    space: Space, command: SweepCommand, references: Mapping[str, Assignment]
) -> tuple[list[PlannedEffect], list[Refused]]:
    if not command.sweep.designs and not command.measure.placebo:
        raise ConfigError(f"sweep={command.sweep.name} has no designs; list at least one under sweep.designs")
    effects: list[PlannedEffect] = []
    refused: list[Refused] = []
    for config in command.sweep.designs:
        design = _design(space, config, command.axes, references)
        effects += design.effects
        refused += design.refused
    effects += designs.steps(command.sweep.parts, references)
    if not effects and not command.measure.placebo:
        raise ConfigError(f"sweep={command.sweep.name} compares nothing: no level differs from the baseline")
    return effects, refused


def _design(
    space: Space, config: DesignConfig, axes: Mapping[str, Any], references: Mapping[str, Assignment]
) -> Design:
    reference_name = config.reference or next(iter(references))
    if reference_name not in references:
        raise ConfigError(
            f"sweep.designs: reference={reference_name} is unknown; choose a baseline from:"
            f" {', '.join(references)}"
        )
    reference = references[reference_name]
    chosen = _axes(config, axes)
    match config.kind:
        case "one_at_a_time":
            return designs.one_at_a_time(space, reference, chosen or None)
        case "leave_one_out":
            return designs.leave_one_out(space, config.best, config.toggles)
        case "chain":
            return designs.chain(space, reference, reference_name, config.steps)
        case "ladder":
            return designs.ladder(space, reference, chosen)
        case "factorial":
            return designs.factorial(space, reference, chosen)
        case "fractional":
            return designs.fractional(space, reference, chosen, config.resolution)
        case "arms":
            return designs.named_arms(space, config.arms, references)
    known = "one_at_a_time, leave_one_out, chain, ladder, factorial, fractional, arms"
    raise ConfigError(f"sweep.designs: kind {config.kind} is unknown; choose from: {known}")


def _axes(config: DesignConfig, axes: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Toggles and levels that a design is restricted to: the command line's axes, else the design's own."""
    chosen = {name: _as_list(values) for name, values in axes.items()}
    if empty := [name for name, values in chosen.items() if not values]:
        raise ConfigError(
            f"axes.{empty[0]}=[] names no level; list some, as axes.{empty[0]}=[LEVEL,LEVEL], or leave it out"
        )
    if not chosen:
        chosen = {name: [] for name in config.toggles or ()}
        chosen.update({name: _as_list(values) for name, values in config.levels.items()})
    return chosen


def _as_list(values: Any) -> list[Any]:
    return list(values) if isinstance(values, (list, tuple)) else [values]


def identified(effect: PlannedEffect, arm_for: Callable[[Assignment], Any]) -> Effect:
    """An effect whose arms have ids."""
    pairs = tuple((arm_for(arm).id, arm_for(base).id) for arm, base in effect.pairs)
    contrast = {arm_for(arm).id: weight for arm, weight in effect.contrast}
    identity = json.dumps(
        [effect.design, effect.toggle, effect.level, pairs, *([contrast] if contrast else [])]
    )
    return Effect(
        id=hashlib.sha256(identity.encode()).hexdigest()[:12],
        design=effect.design,
        toggle=effect.toggle,
        level=effect.level,
        pairs=pairs,
        reference=effect.reference,
        also=effect.also,
        contrast=contrast,
    )
