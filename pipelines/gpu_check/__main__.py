"""A GPU check as a job: ``python -m perfsweep.pipelines.gpu_check FOLDER NUMBER...``, or one stage."""

from __future__ import annotations

import sys
from pathlib import Path

from perfsweep.pipelines.gpu_check import stages
from perfsweep.pipelines.trial.machine import environment


def main(arguments: list[str]) -> int:
    """Run stages as processes, or the questions of one; the status says only that an answer was written."""
    folder, *rest = Path(arguments[0]), *arguments[1:]
    if rest and not rest[0].isdigit():
        stages.run_stage(folder, rest[0])
        return 0
    chosen = stages.chosen(list(map(int, rest)))
    stages.check(folder, environment.device_facts(), lambda line: print(line, flush=True), chosen)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
