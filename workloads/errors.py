"""Mistakes of a user, each with one sentence that says what, where and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class PerfsweepError(Exception):
    """Root of every error that is the user's to fix; the command line prints it without a traceback."""


class ConfigError(PerfsweepError):
    """A value, level, combination or option that cannot be used."""


class Ruled:
    """A configuration that refuses values by rules of its own."""

    def _require(self, name: str, holds: bool, rule: str) -> None:
        if not holds:
            raise ConfigError(f"workload.{name}={getattr(self, name)} cannot be used: it must be {rule}")


class ContractError(PerfsweepError):
    """A workload class that does not keep the contract of `perfsweep.workloads.api`."""


class RecordError(PerfsweepError):
    """A file of a sweep that is missing, half written, foreign or of another schema version."""


class UnsupportedHere(PerfsweepError):
    """Something correct that this machine cannot do."""


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Ask for the nearest of the known words: a sentence and a space, or nothing."""
    close = difflib.get_close_matches(str(word), list(known), n=1)
    return f"did you mean {close[0]}? " if close else ""


_HARMLESS = dict.fromkeys((*range(32), *range(127, 160)), "�") | {9: "\t", 10: "\n", 13: " "}


def harmless(text: str) -> str:
    """Text without control characters: what is in a sweep's files never steers a terminal."""
    return text.translate(_HARMLESS)
