"""`perfsweep comment`: what a pull request is told, from the files of `perfsweep judge --json`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from perfsweep.pipelines.exits import DONE
from perfsweep.pipelines.report import pull_request, version_answer
from perfsweep.workloads.errors import ConfigError


def comment(files: Sequence[str], output: str | None = None) -> int:
    """Write the comment to a file, or print it.

    Raises
    ------
    ConfigError
        A file is none of `perfsweep judge --json`, or the comment cannot be written.
    """
    text = pull_request.comment([_read(Path(file)) for file in files])
    if output is None:
        click.echo(text, nl=False)
        return DONE
    try:
        Path(output).write_text(text)
    except OSError as error:
        raise ConfigError(f"{output} cannot be written ({error.strerror}); choose another file") from error
    return DONE


def _read(file: Path) -> dict[str, Any]:
    remedy = f"write it by: perfsweep judge --json -- workload=... > {file}"
    try:
        found = json.loads(file.read_text())
    except OSError as error:
        raise ConfigError(f"{file} cannot be read ({error.strerror}); {remedy}") from error
    except ValueError as error:
        raise ConfigError(f"{file} is no JSON; {remedy}") from error
    schema = found.get("schema") if isinstance(found, dict) else None
    if schema != version_answer.SCHEMA or not found.keys() >= version_answer.FIELDS:
        raise ConfigError(f"{file} is no answer of perfsweep judge (schema {schema}); {remedy}")
    return found
