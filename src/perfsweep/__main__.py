"""``perfsweep`` and ``python -m perfsweep``: the command line."""

from __future__ import annotations

import sys
from typing import NoReturn

INTERRUPTED = 130
"""The same as in `perfsweep.pipelines.exits`, which may not be imported yet when Ctrl-C comes."""


def main() -> None:
    """Run a command."""
    try:
        from perfsweep.pipelines.cli import main as run

        run()
    except KeyboardInterrupt:  # during the import of the command line
        _end_interrupted()
    except Exception as error:  # some modules turn Ctrl-C during their import into an error of their own
        if not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        _end_interrupted()


def _end_interrupted() -> NoReturn:
    print("perfsweep: interrupted", file=sys.stderr)
    sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
