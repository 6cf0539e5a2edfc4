"""The console script; help, completion and mistakes in names import neither torch nor wandb.

All commands are in one list, `perfsweep.pipelines.commands.catalog`.

Exit status: 0 done, 1 some trials or packs failed, 2 a mistake in the command or its input, 3 jobs need
attention, 130 interrupted or detached.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence

import click

from perfsweep.pipelines.commands.catalog import COMMANDS
from perfsweep.pipelines.commands.dispatch import of_the_system
from perfsweep.pipelines.exits import INTERRUPTED, MISTAKE, SOME_FAILED
from perfsweep.slurm.errors import ClusterError
from perfsweep.workloads.errors import PerfsweepError, harmless


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that the arguments name, and exit with its status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words:
        _run("perfsweep", ["--help"])
        sys.exit(MISTAKE)
    sys.exit(_run(f"perfsweep {words[0]}", ["--help"] if words[0] == "help" else words))


def _run(name: str, words: list[str]) -> int:
    """Run a command; what goes wrong becomes one sentence on stderr."""
    try:
        with COMMANDS.make_context("perfsweep", words) as context:
            status = COMMANDS.invoke(context)
        sys.stdout.flush()  # so that a full disk of `> file` is an error here, and not at exit
        return status
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.UsageError as error:
        said = error.format_message()
        return _complain(f"{name}: {said}{'' if said.endswith('.') else '.'} See {name} --help.", MISTAKE)
    except (PerfsweepError, ClusterError) as error:
        return _complain(f"{name}: {error}", MISTAKE)
    except BrokenPipeError:
        return _nobody_reads()
    except OSError as error:
        if error.errno == errno.ENOENT and not error.filename:  # os.getcwd names no file
            here = os.environ.get("PWD", ".")
            return _complain(
                f"{name}: {here}: the current folder was removed. Change to another, such as by: cd", MISTAKE
            )
        status = MISTAKE if error.errno in (errno.ENAMETOOLONG, errno.ELOOP) else SOME_FAILED
        return _complain(f"{name}: {of_the_system(error, COMMANDS.commands.get(words[0]))}", status)
    except KeyboardInterrupt:
        return _complain(f"{name}: interrupted", INTERRUPTED)


def _nobody_reads() -> int:
    """End quietly where the reader of a pipe has gone, as of ``perfsweep list | head -1``."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return SOME_FAILED


def _complain(sentence: str, status: int) -> int:
    print(harmless(sentence), file=sys.stderr)
    return status


if __name__ == "__main__":
    main()
