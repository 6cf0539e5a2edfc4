"""``perfsweep`` and ``python -m perfsweep``: the command line."""

from __future__ import annotations

import sys
from typing import NoReturn

INTERRUPTED = 130
"""As `perfsweep.pipelines.exits` says; Ctrl-C may come before anything else is imported."""


def main() -> None:
    """Run a command."""
    try:
        from perfsweep.pipelines.cli import main as run

        run()
    except KeyboardInterrupt:  # that came while the command line was imported
        _end_interrupted()
    except Exception as error:  # compiled modules and classes in the making raise their own because of it
        if not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        _end_interrupted()


def _end_interrupted() -> NoReturn:
    print("perfsweep: interrupted", file=sys.stderr)
    sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
