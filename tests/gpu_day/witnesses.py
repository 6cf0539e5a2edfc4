"""Hold every level of a workload that acts on CUDA alone against its base: ``witnesses.py NUMBER FOLDER``."""

from __future__ import annotations

import sys
from pathlib import Path

from perfsweep.pipelines.gpu_check import workload_stages
from perfsweep.pipelines.gpu_check.answer import Here, cases
from perfsweep.pipelines.trial.machine import environment


def main(number: str, folder: str) -> int:
    """Print the line of stage 5 for one of its workloads; 1 where it fails."""
    place = Path(folder) / f"witnesses{number}"
    place.mkdir(parents=True, exist_ok=True)
    line = workload_stages.witness_line(
        Here(environment.device_facts(), place), cases()["witnesses"][int(number)]
    )
    print(line.verdict.value, line.name, line.text)
    return int(line.verdict.value == "FAIL")


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
