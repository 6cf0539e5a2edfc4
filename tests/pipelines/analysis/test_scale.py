"""A large sweep is compared in seconds: 2,000 trials of 10,000 iterations, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from budget import of_its_machine
from measured import cost, simulated

from perfsweep.pipelines.config.types import DesignConfig

TRIALS, ITERATIONS = 2000, 10_000
SECONDS, GIBIBYTES = 20.0, 2.0

COMPARE = """
import json, re, sys, time
from pathlib import Path
from perfsweep.pipelines.commands.comparison import compare
start = time.process_time()
status = compare(sys.argv[1])
# Not ru_maxrss: across fork and exec it keeps the size of the process that runs the tests.
peak_kb = int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
print(json.dumps({"status": status, "seconds": time.process_time() - start, "gibibytes": peak_kb / 2**20}))
"""


@pytest.mark.slow
def test_two_thousand_trials_are_compared_in_twenty_seconds_and_two_gigabytes(
    command, tmp_path: Path
) -> None:
    rounds = 40
    slabs = list(range(2, TRIALS // rounds + 1))
    design = DesignConfig("one_at_a_time", levels={"slab": slabs})
    folder, manifest = simulated(command(design, measure={"rounds": rounds}), cost, iterations=ITERATIONS)
    assert len(manifest.arms) * rounds == TRIALS
    support = Path(__file__).parents[2] / "support"
    script = f"import sys; sys.path.insert(0, {str(support)!r})\n{COMPARE}"
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder.path)], capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert folder.report_file.exists()
    assert of_its_machine(found["seconds"]) < SECONDS, found
    assert found["gibibytes"] < GIBIBYTES, found
