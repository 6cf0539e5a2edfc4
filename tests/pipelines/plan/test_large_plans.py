"""What planning thousands of arms costs: work that grows with the arms, and no faster."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

MANY = """
import json, re, sys, time
from pathlib import Path
from perfsweep.pipelines.config.types import DesignConfig, MeasureConfig, SweepCommand, SweepConfig
from perfsweep.pipelines.plan import plan
from perfsweep.workloads.api import Device

design = DesignConfig("ladder", levels={sys.argv[2]: list(range(2, 10002))})
command = SweepCommand(
    workload={"name": sys.argv[1]}, measure=MeasureConfig(), sweep=SweepConfig(name="many", designs=[design])
)
manifest = plan.make_plan(command, Device())
# Not ru_maxrss: across fork and exec it keeps the size of the process that runs the tests.
peak_kb = int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
print(json.dumps([len(manifest.arms), time.process_time(), peak_kb * 1024]))
"""


@pytest.mark.slow
def test_ten_thousand_arms_take_ten_seconds_of_a_processor_and_a_gibibyte() -> None:
    """Importing torch and the workload included."""
    command = [sys.executable, "-c", MANY, "digits", "micro_batch"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    arms, seconds, memory = json.loads(done.stdout)
    print(f"\n{arms} arms planned: {seconds:.1f} s of a processor, {memory / 2**20:.0f} MiB")
    assert arms == 10001
    assert seconds < 10
    assert memory < 2**30
