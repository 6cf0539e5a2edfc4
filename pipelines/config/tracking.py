"""What W&B takes for names and addresses, what the user's shell says of it, and how wandb is started.

Nothing here talks to W&B or imports it: the object of its settings is made where a run is opened.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
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


SETTINGS: dict[str, Any] = {
    "mode": "offline",
    "console": "off",  # capturing output writes a record for each line
    "disable_git": True,
    "disable_code": True,
    "save_code": False,
    "x_save_requirements": False,  # records hold the environment of the measurement, not of the publishing
    "x_disable_meta": True,
    "x_disable_machine_info": True,
    "x_disable_stats": True,
    "ignore_globs": ("config.yaml", "wandb-summary.json"),  # copies of what the run says: three requests
    "init_timeout": 20,
    "finish_timeout": 30,  # the default may block for hours
    "x_service_wait": 30,
    "x_transaction_log_flush_interval": 1,  # bounds what a killed process loses
    "x_file_stream_transmit_interval": 5,
    "silent": True,
    "symlink": False,  # a link to the latest run makes patterns over run folders match twice
    "reinit": "create_new",  # the default hands out, and then finishes, a run that the caller has open
}
"""Settings of every run. Names with `x_` are not public in W&B: they are used here and nowhere else."""

KEPT_VARIABLES = frozenset({"WANDB_CACHE_DIR", "WANDB_DATA_DIR"})
"""Variables of the user's shell that W&B gets to see: where a site wants large temporary files, if it says
so."""


def settings(root: Path, **own: Any) -> dict[str, Any]:
    """List the arguments of `settings_of` for a run below `root`.

    Make the object inside `own_environment`.
    """
    return {**SETTINGS, "root_dir": str(root), **own}


def settings_of(wandb: Any, values: Mapping[str, Any]) -> tuple[Any, str]:
    """Make `wandb.Settings` of the fields that the installed wandb knows, and a remark on the others.

    Names that begin with ``x_`` are not public in W&B, and change between its versions.
    """
    known = getattr(wandb.Settings, "model_fields", values)
    unknown = sorted(set(values) - set(known))
    made = wandb.Settings(**{name: value for name, value in values.items() if name in known})
    remark = f"wandb {wandb.__version__} knows no setting {', '.join(unknown)}: left out" if unknown else ""
    return made, remark


@contextmanager
def own_environment(private: Path, server: str | None = None, *, credentials: bool = False) -> Iterator[None]:
    """Hide the shell's W&B variables (a run id, a mode, a key) and keep W&B's own files below `private`.

    `credentials` stay visible where they are for the `server`. The variables, which W&B reads at import,
    set-up and initialisation, are put back at the end.
    """
    before = {name: value for name, value in os.environ.items() if name.startswith("WANDB_")}
    ours = {
        "WANDB_DIR": str(private / "api"),  # or each run that a server lists leaves a folder in TMPDIR
        "WANDB_CACHE_DIR": str(private / "cache"),
        "WANDB_DATA_DIR": str(private / "data"),
        "WANDB_CONFIG_DIR": str(private / "config"),
        "WANDB_SILENT": "true",
        "WANDB_ERROR_REPORTING": "false",  # or W&B may report its failures over the network, also offline
    }
    if server is not None:
        ours["WANDB_BASE_URL"] = server
    kept = {*KEPT_VARIABLES, *(CREDENTIALS if credentials else ())}
    _replace_variables({**ours, **{name: value for name, value in before.items() if name in kept}})
    try:
        yield
    finally:
        _replace_variables(before)


@contextmanager
def guarded(problems: list[str]) -> Iterator[None]:
    """Note whatever W&B raises as one line in `problems`; only Ctrl-C and exit pass on."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001  a dead background process surfaces as a cancelled asyncio task too
        lines = str(error).strip().splitlines() or ["no message"]
        problems.append(f"{type(error).__name__}: {lines[0]}")


def _replace_variables(variables: Mapping[str, str]) -> None:
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        del os.environ[name]
    os.environ.update(variables)
