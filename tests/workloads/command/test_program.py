"""What is said of a run that failed, where a program is looked for, and which part of a stream is kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perfsweep.workloads.command.program import Kept, Program, Run, RunFailed, executable, require_end
from perfsweep.workloads.errors import ConfigError


def run(status: int, output: str = "", errors: str = "", late: bool = False) -> Run:
    streams = Kept(), Kept()
    for stream, text in zip(streams, (output, errors), strict=True):
        stream.add(text.encode())
    return Run("workload.command", status, (), 0, *streams, late)


@pytest.mark.parametrize(
    ("failed", "sentence"),
    [
        (run(-9), "a run ended with signal SIGKILL instead of 0; it wrote nothing"),
        (run(1, "out\n"), "a run ended with status 1 instead of 0; last it wrote: out"),
        (run(1, "out\n", "a\n\nb"), "a run ended with status 1 instead of 0; last it wrote: a | b"),
        (
            run(0, "out", late=True),
            "a run did not end in time and was killed with all it had started; see workload.timeout and"
            " measure.timeout_s; last it wrote: out",
        ),
    ],
)
def test_a_run_that_failed_is_told_with_its_last_words(failed: Run, sentence: str) -> None:
    with pytest.raises(RunFailed) as told:
        require_end(failed, 0)
    assert str(told.value) == f"workload.command: {sentence}"


def test_a_program_is_looked_for_on_the_path_or_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/tool"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    environment = {"PATH": f"/nowhere{os.pathsep}{tmp_path / 'bin'}"}
    assert executable("tool", environment, Path("/"), "here") == str(program)
    assert executable("bin/tool", {}, tmp_path, "here") == str(program)
    assert executable(str(program), {}, Path("/"), "here") == str(program)
    assert executable("sh", {}, tmp_path, "here").endswith("/sh")  # as where there is no PATH
    with pytest.raises(ConfigError, match=r"^here: tool is not on PATH; name a program, or its interpreter$"):
        executable("tool", {"PATH": "/nowhere"}, tmp_path, "here")
    program.chmod(0o644)
    with pytest.raises(ConfigError, match=r"^here: .*/bin/tool does not exist, or cannot be executed; name"):
        executable("bin/tool", environment, tmp_path, "here")


def test_ctrl_c_at_the_terminal_does_not_reach_what_starts_the_runs(tmp_path: Path) -> None:
    program = Program(["true"], {}, tmp_path)
    starts = program._launcher.pid
    assert os.getsid(starts) == starts  # a session of its own
    program.close()
