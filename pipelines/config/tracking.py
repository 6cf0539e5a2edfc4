"""What W&B takes for names and addresses, and where the user's shell says something else than the options.

Nothing here talks to W&B or imports it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from perfsweep.pipelines.store.options import TrackingConfig
from perfsweep.workloads.errors import ConfigError

FROM_SHELL = {"entity": "WANDB_ENTITY", "base_url": "WANDB_BASE_URL"}
"""Fields that the shell may fill where the configuration leaves them open."""

CREDENTIALS = ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE")
"""Variables that carry or name a secret: they are handed on to publishers and written nowhere."""

CHOSEN_SERVER = "PERFSWEEP_WANDB_SERVER"
"""Variable that tells packs which server the user's own configuration names."""

_NO_OPINION = frozenset(
    {*CREDENTIALS, "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR", "WANDB_SILENT", "WANDB_QUIET"}
)
_LONGEST_NAME = 128
_BAD_IN_NAMES = re.compile(r"[/\\#?%:\x00-\x1f]")


def check(tracking: TrackingConfig) -> None:
    """Refuse names that W&B would refuse after hours of measuring.

    Raises
    ------
    ConfigError
        A name or address cannot be used; the message names the field.
    """
    for name in ("project", "entity", "base_url"):
        if refusal := _refusal(name, getattr(tracking, name)):
            raise ConfigError(refusal)


def _refusal(name: str, value: str | None) -> str | None:
    """Say why a name or address cannot be used; never with a secret in the sentence."""
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
    if "@" in url:  # before it is parsed: what is no address may hold a password all the same
        return "tracking.base_url holds a user name or password; put credentials into ~/.netrc instead"
    try:
        parts = urlsplit(url)
        port_is_bad = parts.port == 0
    except ValueError:
        return f"tracking.base_url={url} is no address; write it as https://HOST"
    if parts.scheme not in ("http", "https") or not parts.hostname or port_is_bad:
        return f"tracking.base_url={url} is no address; write it as https://HOST"
    return None


def from_shell(tracking: TrackingConfig, shell: Mapping[str, str]) -> dict[str, Any]:
    """Take from the shell what the configuration leaves open."""
    values = {
        name: shell.get(variable) for name, variable in FROM_SHELL.items() if getattr(tracking, name) is None
    }
    return {name: value for name, value in values.items() if value and _refusal(name, value) is None}


def contradictions(tracking: TrackingConfig, shell: Mapping[str, str]) -> list[str]:
    """Write one sentence for each WANDB_ variable of the shell that the configuration overrules."""
    variables = sorted(name for name in shell if name.startswith("WANDB_") and name not in _NO_OPINION)
    sentences = (_contradiction(name, shell[name], tracking) for name in variables if shell[name])
    return [sentence for sentence in sentences if sentence]


def _contradiction(variable: str, value: str, tracking: TrackingConfig) -> str | None:
    field = variable.removeprefix("WANDB_").lower()
    if field in FROM_SHELL and (refusal := _refusal(field, value)):
        return f"{variable} of your shell is ignored: {refusal}"
    if field not in ("mode", "project", *FROM_SHELL):
        return f"{variable} of your shell has no effect: perfsweep sets this itself; unset it"
    ours = getattr(tracking, field)
    if ours is None or ours.rstrip("/") == value.rstrip("/"):
        return None
    return (
        f"{variable}={value} of your shell contradicts tracking.{field}={ours}, which holds; unset it or give"
        f" tracking.{field}"
    )
