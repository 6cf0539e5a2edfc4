"""``perfsweep`` and ``python -m perfsweep``: the command line."""

from __future__ import annotations

import sys
from typing import NoReturn

from perfsweep.neighbours import refuse_shadows

INTERRUPTED = 130
"""As `pipelines.exits` says, which may not be imported before it is known to be ours."""


def main() -> None:
    """Run a command, unless something else would be imported in the place of what runs it."""
    try:
        refuse_shadows()
    except ImportError as error:
        print(f"perfsweep: {error}", file=sys.stderr)
        sys.exit(2)
    try:
        from pipelines.cli import main as run

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
