"""Limits of a search: one for memory, whichever way it was given, and all of them in words."""

from __future__ import annotations

import dataclasses

from perfsweep.pipelines.config.types import SweepCommand, TuneCommand
from perfsweep.workloads.errors import ConfigError


def take_memory(command: SweepCommand, name: str, memory_gib: float | None) -> None:
    """Make the memory limit of a search one of its trials.

    Raises
    ------
    ConfigError
        Two limits contradict one another.
    """
    own = command.measure.memory_gib
    if memory_gib is not None and own is not None and own != memory_gib:
        raise ConfigError(
            f"{name}.memory_gib={memory_gib:g} and measure.memory_gib={own:g} contradict one another; give"
            " one of them"
        )
    command.measure = dataclasses.replace(
        command.measure, memory_gib=own if memory_gib is None else memory_gib
    )


def refuse_too_much_memory(name: str, memory_gib: float | None, there: int) -> None:
    """A limit above what the device has would limit nothing.

    Raises
    ------
    ConfigError
        It is.
    """
    if memory_gib is not None and there and memory_gib * 2**30 > there:
        raise ConfigError(
            f"{name}.memory_gib={memory_gib:g} is more than the {there / 2**30:.1f} GiB of the device; leave"
            " it out"
        )


def budget(command: SweepCommand, there: int) -> int | None:
    """Bytes that an arm may need: the limit, else nine tenths of what the device has."""
    if command.measure.memory_gib is not None:
        return int(command.measure.memory_gib * 2**30)
    return int(0.9 * there) or None


def limit_words(command: TuneCommand) -> list[str]:
    """The limits of a search, in words."""
    tune = command.tune
    words = [f"results no looser than {tune.parity}"]
    words += (
        [f"peak memory {command.measure.memory_gib:g} GiB"] if command.measure.memory_gib is not None else []
    )
    words += [f"{tune.compile_s:g} s of compiling"] if tune.compile_s is not None else []
    return [
        *words,
        (
            f"for {tune.iterations:g} iterations, set-up and compiling included"
            if tune.iterations
            else "for a long run"
        ),
    ]
