"""A short job that says whether a node is as the site profile says: one finding for each thing.

It goes the way of every pack: the same batch script with its set-up lines, the same start of Python, and
files in a folder of the sweeps' file system.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perfsweep.slurm import element, probe_body
from perfsweep.slurm.errors import ClusterError
from perfsweep.slurm.executor import SlurmExecutor
from perfsweep.slurm.job_outcome import SETUP_SIGN
from perfsweep.slurm.jobs import PYTHON, ExecutorContext, Job, JobState
from perfsweep.slurm.site import SiteProfile

LIMIT_MIN = 3
"""Time limit of the job, which takes seconds where file systems are quick."""

POLL_S = 0.5

CLOCK_S = 5.0
"""How far apart clocks may be, beyond what the job's way takes."""

OLDEST_PYTHON = (3, 11)


@dataclass(frozen=True)
class Finding:
    """Whether one thing is as the profile says, None where the job did not get so far; a failure's remedy."""

    subject: str
    fine: bool | None
    text: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        word = {True: "PASS", False: "FAIL", None: "----"}[self.fine]
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"{word}  {self.subject}: {self.text}{remedy}"


@dataclass(frozen=True)
class Probed:
    """What came of the job: its answers if it wrote some, else what is known of its end."""

    facts: dict[str, Any] | None
    note: str = ""
    output: str | None = None
    submitted: float = 0.0
    seen: float = 0.0


def probe(
    site: SiteProfile, runs: Path, modules: tuple[str, ...], url: str, say: Callable[[str], None]
) -> list[Finding]:
    """Submit the job, wait for it, and judge what it found; its folder is removed.

    Parameters
    ----------
    runs : folder that sweeps are written to, and so the probe
    modules : what packs import
    url : of the W&B server
    say : hears what the job waits for

    Raises
    ------
    ClusterError
        The site refuses the job, it can never start, or `runs` cannot be written.
    """
    try:
        runs.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=".doctor-", dir=runs))
    except OSError as error:
        raise ClusterError(
            f"runs={runs} cannot be written ({error.strerror}): choose another folder that nodes see"
        ) from error
    try:
        probed = _run(_short(site), folder, {"modules": modules, "url": url}, say)
        return list(judged(site, runs, probed))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _short(site: SiteProfile) -> SiteProfile:
    """Return the profile for one short job without retries."""
    return replace(
        site,
        time_min=min(site.time_min, LIMIT_MIN),
        signal_delay_s=0,
        max_retries=0,
        requeue=False,
        poll_min_s=min(site.poll_min_s, 2.0),
        poll_max_s=min(site.poll_max_s, 10.0),
    )


def _run(site: SiteProfile, folder: Path, questions: dict[str, Any], say: Callable[[str], None]) -> Probed:
    folder = folder.absolute()
    scripts, answers = folder / "code", folder / "answers.json"
    scripts.mkdir(parents=True)
    for module in (element, probe_body):
        shutil.copy(str(module.__file__), scripts)
    (folder / "questions.json").write_text(json.dumps(questions))
    body = scripts / Path(str(probe_body.__file__)).name
    command = (PYTHON, "-P", str(body), str(folder / "questions.json"), str(answers))
    executor = SlurmExecutor.of(ExecutorContext(site, folder, "doctor", scripts / "none.zip", say=say))
    submitted = time.time()
    try:
        executor.submit([Job("probe", command, folder / "log.txt")])
        note = _followed(executor, say)
    except BaseException:
        executor.cancel()
        raise
    seen = time.time()
    outputs = [path for paths in executor.outputs(folder).values() for path in paths if path.exists()]
    output = "\n".join(path.read_text(errors="replace") for path in outputs) if outputs else None
    facts = json.loads(answers.read_text()) if answers.exists() else None
    return Probed(facts, note, output, submitted, seen)


def _followed(executor: SlurmExecutor, say: Callable[[str], None]) -> str:
    """Wait until the job has ended; returns how."""
    counts = ""
    while not (state := executor.poll()["probe"]).over:
        if executor.held():
            raise ClusterError(f"the probe can never start: {executor.notes().get('probe', '')}")
        if state is JobState.PENDING and (new := executor.counts()) != counts:
            counts = new
            say(f"the probe waits: {counts}; Ctrl-C takes it out of the queue")
        time.sleep(POLL_S)
    return executor.notes().get("probe", "")


def judged(site: SiteProfile, runs: Path, probed: Probed) -> Iterator[Finding]:
    """Hold what came of the job against the profile."""
    facts = probed.facts
    folder = f"a node wrote into {runs}"
    if facts is None and probed.output is None:
        shared = "choose a folder that nodes share with this machine, with runs=PATH"
        folder = f"no node wrote anything into {runs} ({probed.note})"
        yield Finding("folder", False, folder, shared)
        yield from (Finding(name, None, "not reached") for name in SUBJECTS[1:])
        return
    yield Finding("folder", True, folder)
    count = f"{len(site.setup)} of them ended well" if site.setup else "none"
    if facts is None and SETUP_SIGN.removeprefix("perfsweep: ") in probed.note:
        scratch = "cluster.scratch" in probed.note
        remedy = "name a folder that can be made there" if scratch else "fix it in cluster.setup"
        yield Finding("set-up lines", True, count) if scratch else _failed("set-up lines", probed, remedy)
        yield Finding("interpreter", None, "not reached")
        yield Finding("GPU", None, "not reached")
        yield _failed("scratch", probed, remedy) if scratch else Finding("scratch", None, "not reached")
        yield from (Finding(name, None, "not reached") for name in SUBJECTS[5:])
        return
    yield Finding("set-up lines", True, count)
    if facts is None:
        remedy = "say in cluster.python what starts Python there"
        yield Finding("interpreter", False, _last_words(probed), remedy)
        yield from (Finding(name, None, "not reached") for name in SUBJECTS[3:])
        return
    yield _interpreter(facts)
    yield _gpu(site, facts)
    yield _scratch(site, facts)
    yield _network(site, facts)
    yield _clock(facts, probed)


SUBJECTS = ("folder", "set-up lines", "interpreter", "GPU", "scratch", "outbound network", "clock")


def _failed(subject: str, probed: Probed, remedy: str) -> Finding:
    return Finding(subject, False, probed.note, remedy)


def _last_words(probed: Probed) -> str:
    """The last line of Slurm's output that says more than that something ended, else the job's end."""
    lines = [line.strip() for line in (probed.output or "").splitlines() if line.strip()]
    telling = [line for line in lines if not any(sign in line for sign in _EMPTY_WORDS)]
    return telling[-1] if telling else probed.note


_EMPTY_WORDS = ("Exited with exit code", "Terminating job step", "Job step aborted")


def _interpreter(facts: dict[str, Any]) -> Finding:
    where = f"Python {facts['python']} ({facts['executable']}) on {facts['host']}"
    version = tuple(int(part) for part in facts["python"].split(".")[:2])
    if version < OLDEST_PYTHON:
        least = ".".join(map(str, OLDEST_PYTHON))
        return Finding(
            "interpreter", False, where, f"perfsweep needs {least}: name another in cluster.python"
        )
    if facts["missing"]:
        lacks = f"{where} cannot import {', '.join(facts['missing'])}"
        return Finding(
            "interpreter", False, lacks, "install perfsweep there too, or name another in cluster.python"
        )
    if not facts["torch"][:1].isdigit():
        return Finding("interpreter", False, f"{where}: {facts['torch']}", "fix torch there")
    return Finding("interpreter", True, f"{where}, torch {facts['torch'].split()[0]}")


def _gpu(site: SiteProfile, facts: dict[str, Any]) -> Finding:
    if not site.gpus:
        return Finding("GPU", True, "none asked for")
    given, sees = len(facts["visible"]), facts["torch"].split()[-1]
    if given != site.gpus:
        text = f"the profile asks for {site.gpus}, and the job sees {given}"
        return Finding("GPU", False, text, "choose another cluster.gpu_flag, or another partition")
    if sees != str(site.gpus):
        text = f"Slurm gave {given}, and torch sees {sees if sees.isdigit() else 'none'}"
        remedy = "install torch for CUDA there; a container needs the driver (apptainer exec --nv)"
        if any(name.startswith("MIG-") for name in facts["visible"]) and sees == "1":
            remedy = "one process uses one MIG slice: ask for whole GPUs, or for one slice (cluster.gpus=1)"
        return Finding("GPU", False, text, remedy)
    return Finding("GPU", True, f"{given}, as asked for")


def _scratch(site: SiteProfile, facts: dict[str, Any]) -> Finding:
    found = facts["scratch"]
    if not site.scratch:
        return Finding("scratch", True, "none asked for")
    if "error" in found or not found:
        text = (
            f"{found.get('path', site.scratch)} cannot be written ({found.get('error', 'it was not made')})"
        )
        return Finding(
            "scratch", False, text, "name another folder in cluster.scratch, and bind it in a container"
        )
    return Finding("scratch", True, f"{found['path']}, {found['free_gib']:.0f} GiB free")


def _network(site: SiteProfile, facts: dict[str, Any]) -> Finding:
    why = facts["network"]
    if why and site.network:
        remedy = "set the site's proxy in cluster.env_set (https_proxy), or say cluster.network=false"
        return Finding("outbound network", False, f"the W&B server was not reached ({why})", remedy)
    if why:
        expected = "as the profile says" if site.network is False else "tracking=offline needs none"
        return Finding("outbound network", True, f"none ({why}): {expected}")
    surprise = ", though the profile says that there is none" if site.network is False else ""
    return Finding("outbound network", True, f"the W&B server answers{surprise}")


def _clock(facts: dict[str, Any], probed: Probed) -> Finding:
    apart = max(probed.submitted - facts["time"], facts["time"] - probed.seen)
    if apart <= CLOCK_S:
        return Finding("clock", True, f"within {CLOCK_S:g} s of this machine's")
    side = "behind" if facts["time"] < probed.submitted else "ahead of"
    remedy = "ask the site to set it by NTP: signs of life are told apart by times"
    return Finding("clock", False, f"{apart:.0f} s {side} this machine's", remedy)
