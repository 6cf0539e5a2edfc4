"""The environment that a user's own program is to see: without what measuring it has added.

Code that adds variables for the processes that measure (import paths, threads, malloc, the hash seed) notes
what was there before, in one more variable; what starts the user's program takes them back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

NOTE = "PERFSWEEP_USER_ENVIRONMENT"
"""Variable with the user's own value, or null, of every variable that was changed."""

INTERPRETER = "PERFSWEEP_PYTHON"
"""Variable with the interpreter of a process that starts in another environment than what measures."""

_ACTIVATING = frozenset(("PATH", "VIRTUAL_ENV"))
"""What the user's program is to see as it was changed, where it runs in another environment."""

COERCED = "LC_CTYPE"
"""Python sets it in a C locale, before any code of ours runs."""

_AT_START = Path("/proc/self/environ")


def changed(environ: Mapping[str, str], changes: Mapping[str, str]) -> dict[str, str]:
    """Changes to `environ` together with the note of what they replace; earlier notes are kept."""
    kept = {NOTE, *(_ACTIVATING if INTERPRETER in changes else ())}
    noted = {name: environ.get(name) for name in changes if name not in kept}
    if COERCED in environ and COERCED not in at_start():
        noted[COERCED] = None
    return {**changes, NOTE: json.dumps({**noted, **_note(environ)}, sort_keys=True)}


def user_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Build the environment that `environ` was before it was changed for measuring."""
    note = _note(environ)
    kept = {name: value for name, value in environ.items() if name != NOTE and name not in note}
    return {**kept, **{name: value for name, value in note.items() if value is not None}}


def at_start() -> dict[str, str]:
    """Read the environment that this process, or the one it was forked from, was executed with.

    Libraries set variables when they are imported, which the user did not ask for.
    """
    entries = _AT_START.read_bytes().decode(errors="surrogateescape").split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def _note(environ: Mapping[str, str]) -> dict[str, str | None]:
    return json.loads(environ.get(NOTE, "{}"))
