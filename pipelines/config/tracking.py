"""The tracking part of the configuration: what it may say, and where the user's shell says something else.

Nothing here talks to W&B or imports it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from workloads.errors import ConfigError

MODES = ("offline", "online", "disabled")

FROM_SHELL = {"entity": "WANDB_ENTITY", "base_url": "WANDB_BASE_URL"}
"""Fields that the shell may fill where the configuration leaves them open."""

CREDENTIALS = ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE")
"""Variables that carry or name a secret: they are handed on to publishers and written nowhere."""

_NO_OPINION = frozenset(
    {*CREDENTIALS, "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR", "WANDB_SILENT", "WANDB_QUIET"}
)
_LONGEST_NAME = 128
_BAD_IN_NAMES = re.compile(r"[/\\#?%:\x00-\x1f]")


@dataclass(frozen=True)
class Tracking:
    """Where a sweep is published, and how much publishing may cost.

    Attributes
    ----------
    entity : team or user; None: the account's default
    base_url : server; None: the one the account was logged in to
    share : part of a pack's time that publishing to a server between rounds may take
    uploads : runs that are uploaded at once
    patience_s : time for one run after which a publisher is given up, seconds
    """

    mode: str = "offline"
    project: str = "perfsweep"
    entity: str | None = None
    base_url: str | None = None
    share: float = 0.02
    uploads: int = 4
    patience_s: float = 60.0

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Tracking:
        """From a manifest, whose older ones lack fields and may hold others."""
        known = {field.name for field in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in known})


def check(tracking: Any) -> None:
    """Refuse values that W&B would refuse after hours of measuring.

    Raises
    ------
    ConfigError
        A field of `tracking` is out of range; the message names it.
    """
    if tracking.mode not in MODES:
        raise ConfigError(f"tracking.mode={tracking.mode} is unknown; choose from: {', '.join(MODES)}")
    for name in ("project", "entity", "base_url"):
        if refusal := _refusal(name, getattr(tracking, name)):
            raise ConfigError(refusal)
    if not 0 < tracking.share <= 1:
        raise ConfigError(
            f"tracking.share={tracking.share} must be above 0 and at most 1: it is a part of the time"
        )
    if tracking.uploads < 1:
        raise ConfigError(f"tracking.uploads={tracking.uploads} must be at least 1")
    if not tracking.patience_s > 0:
        raise ConfigError(f"tracking.patience_s={tracking.patience_s} must be above zero")


def _refusal(name: str, value: str | None) -> str | None:
    """Why a value of a field cannot be used; never with a secret in it."""
    if value is None:
        return None
    if name == "base_url":
        return _url_refusal(value)
    if not 0 < len(value) <= _LONGEST_NAME:
        return f"tracking.{name} has {len(value)} characters; W&B takes 1 to {_LONGEST_NAME}"
    if bad := _BAD_IN_NAMES.search(value):
        return f"tracking.{name}={value} contains {bad[0]!r}; W&B takes none of / \\ # ? % :"
    return None


def _url_refusal(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        port_is_bad = parts.port == 0
    except ValueError:
        return f"tracking.base_url={url} is no address; write it as https://HOST"
    if parts.username or parts.password:
        return "tracking.base_url holds a user name or password; put credentials into ~/.netrc instead"
    if parts.scheme not in ("http", "https") or not parts.hostname or port_is_bad:
        return f"tracking.base_url={url} is no address; write it as https://HOST"
    return None


def filled(tracking: Any, shell: Mapping[str, str]) -> dict[str, Any]:
    """Values for fields that are open in the configuration and that the shell knows."""
    found = {
        name: shell.get(variable) for name, variable in FROM_SHELL.items() if getattr(tracking, name) is None
    }
    return {name: value for name, value in found.items() if value and _refusal(name, value) is None}


def contradictions(tracking: Any, shell: Mapping[str, str]) -> list[str]:
    """One sentence for each WANDB_ variable of the shell that the configuration overrules."""
    said = []
    for variable in sorted(name for name in shell if name.startswith("WANDB_")):
        if variable in _NO_OPINION or not shell[variable]:
            continue
        field = variable.removeprefix("WANDB_").lower()
        if field in FROM_SHELL and (refusal := _refusal(field, shell[variable])):
            said.append(f"{variable} of your shell is ignored: {refusal}")
            continue
        if field not in ("mode", "project", *FROM_SHELL):
            said.append(f"{variable} of your shell has no effect: perfsweep sets this itself; unset it")
        elif (ours := getattr(tracking, field)) is not None and ours.rstrip("/") != shell[variable].rstrip(
            "/"
        ):
            said.append(
                f"{variable}={shell[variable]} of your shell contradicts tracking.{field}={ours}, which"
                f" holds; unset it or give tracking.{field}"
            )
    return said
