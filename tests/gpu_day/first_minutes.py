"""The first minutes on a GPU node: ``first_minutes.py OUT [right|fast]``; see README.md."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

HERE = Path(__file__).parent
PERFSWEEP = (sys.executable, "-m", "perfsweep")
GRACE_S = 2.0
LAST_LINES = 6
LARGE = 20_000_000
"""Bytes of a file, such as a snapshot of memory, that is not carried back."""


@dataclass(frozen=True)
class Part:
    """A process, and the seconds that it may take."""

    name: str
    command: tuple[str, ...]
    limit_s: float


def right(kept: Path) -> list[list[Part]]:
    """Ask whether all is right: facts alone, then everything whose times do not count."""
    cases = yaml.safe_load((HERE.parents[1] / "conf" / "gpu_check.yaml").read_text())
    witnesses = [
        Part(
            f"witnesses-{one['name']}",
            (sys.executable, str(HERE / "witnesses.py"), str(number), str(kept)),
            180,
        )
        for number, one in enumerate(cases["witnesses"])
    ]
    tests = (
        sys.executable,
        "-m",
        "pytest",
        "-m",
        "gpu",
        "tests",
        "-p",
        "no:cacheprovider",
        "--tb=short",
        "-rs",
    )
    return [
        [_doctor("facts", "0,1,2", 110, kept)],
        [
            _doctor("memory", "3", 180, kept),
            _doctor("kernels", "4", 180, kept),
            *witnesses,
            Part("tests", tests, 180),
            Part("tune", (*PERFSWEEP, "tune", str(HERE / "train.py"), f"runs={kept}/tune"), 180),
            Part("profile", (*PERFSWEEP, "profile", "workload=digits", f"runs={kept}/profile"), 180),
        ],
    ]


def fast(kept: Path) -> list[list[Part]]:
    """Measure the sweeps for a GPU, one after the other, each with two placebos."""
    words = ("sweep=gpu", "cluster=local", "tracking=disabled", "measure.budget_s=40", "measure.placebo=2")
    return [
        [
            Part(
                name,
                (*PERFSWEEP, "sweep", f"workload={name}", *words, f"name={name}", f"runs={kept}/fast"),
                100,
            )
        ]
        for name in ("digits", "spd", "prover", "probe1d", "latentwire")
    ]


def _doctor(name: str, stages: str, limit_s: float, kept: Path) -> Part:
    words = ("doctor", "gpu=true", "cluster=local", f"stages=[{stages}]", f"runs={kept}/{name}")
    return Part(name, (*PERFSWEEP, *words), limit_s)


HALVES = {"right": right, "fast": fast}


def run(parts: Sequence[Part], out: Path) -> list[str]:
    """Run parts next to each other; tell each one's status, seconds and last lines when it has ended.

    Returns the names of those that ended late or with another status than 0.
    """
    left, bad = {}, []
    for part in parts:
        with (out / f"{part.name}.txt").open("wb") as log:
            process = subprocess.Popen(
                part.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        left[part] = (process, time.monotonic())
    while left:
        for part, (process, begun) in tuple(left.items()):
            seconds = time.monotonic() - begun
            if process.poll() is None and seconds < part.limit_s:
                continue
            late = process.poll() is None
            _end(process, late)
            del left[part]
            bad += [part.name] * (late or process.returncode != 0)
            lines = (out / f"{part.name}.txt").read_text(errors="replace").strip().splitlines()
            how = f"ended after its limit of {part.limit_s:.0f} s" if late else f"status {process.returncode}"
            print(f"== {part.name}: {how}, {seconds:.0f} s", *lines[-LAST_LINES:], sep="\n   ", flush=True)
        time.sleep(0.2)
    return bad


def _end(process: subprocess.Popen[bytes], late: bool) -> None:
    """End a process's whole group; one that is late may first write down what it has."""
    for number in (signal.SIGTERM, signal.SIGKILL) if late else (signal.SIGKILL,):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        time.sleep(GRACE_S if number == signal.SIGTERM else 0)
    process.wait()


def main(words: Sequence[str]) -> int:
    """Run the groups of both halves, or of one, and keep their records; status 1 where a part ended badly."""
    parser = argparse.ArgumentParser(description="Check a GPU node, then measure on it.")
    parser.add_argument("out", help="folder for logs and records")
    parser.add_argument("half", nargs="?", choices=[*HALVES], help="only whether all is right, or how fast")
    asked = parser.parse_args(words)
    place = Path(asked.out).absolute()
    kept = place / "kept"
    kept.mkdir(parents=True, exist_ok=True)
    groups = [parts for name in ([asked.half] if asked.half else HALVES) for parts in HALVES[name](kept)]
    bad = [name for parts in groups for name in run(parts, place)]
    with tarfile.open(place / "kept.tar.gz", "w:gz") as archive:
        archive.add(kept, "kept", filter=lambda one: None if one.size > LARGE else one)
    print(f"records: {place / 'kept.tar.gz'}; ended badly: {', '.join(bad) or 'none'}")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
