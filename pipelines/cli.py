"""The console script; help, completion and mistakes in names import neither torch nor wandb.

What it knows stands in one list, `pipelines.commands.catalog`.

Exit status: 0 done, 1 some trials or packs failed, 2 a mistake in the command or its input, 3 jobs need
attention, 130 interrupted or detached.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from pipelines.commands.catalog import COMMANDS
from pipelines.exits import INTERRUPTED, MISTAKE, SOME_FAILED
from slurm.errors import SlurmError
from workloads.errors import PerfsweepError


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command, and exit with its status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words:
        _run("perfsweep", ["--help"])
        sys.exit(MISTAKE)
    sys.exit(_run(f"perfsweep {words[0]}", ["--help"] if words[0] == "help" else words))


def _run(name: str, words: list[str]) -> int:
    """Run a command; what goes wrong becomes one sentence on stderr."""
    try:
        with COMMANDS.make_context("perfsweep", words) as context:
            return COMMANDS.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.UsageError as error:
        return _complain(f"{name}: {error.format_message()} See {name} --help.", MISTAKE)
    except (PerfsweepError, SlurmError) as error:
        return _complain(f"{name}: {error}", MISTAKE)
    except OSError as error:  # a full or read-only disk, mostly: what is measured stays where it is
        where = f"{error.filename}: " if error.filename else ""
        return _complain(f"{name}: {where}{error.strerror or error}; nothing measured is lost", SOME_FAILED)
    except KeyboardInterrupt:
        return _complain(f"{name}: interrupted", INTERRUPTED)


def _complain(sentence: str, status: int) -> int:
    print(sentence, file=sys.stderr)
    return status


if __name__ == "__main__":
    main()
