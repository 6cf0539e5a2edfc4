"""How wandb is started: the one table of its settings, and the surroundings it gets to see.

Imports no wandb: the object is made where a run is opened.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perfsweep.pipelines.config.tracking import CREDENTIALS

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
