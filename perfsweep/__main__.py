"""``perfsweep`` and ``python -m perfsweep``: the command line."""

from __future__ import annotations

import sys

from perfsweep.neighbours import refuse_shadows


def main() -> None:
    """Run a command, unless something else would be imported in the place of what runs it."""
    try:
        refuse_shadows()
    except ImportError as error:
        print(f"perfsweep: {error}", file=sys.stderr)
        sys.exit(2)
    from pipelines.cli import main as run

    run()


if __name__ == "__main__":
    main()
