"""Set-up lines and the interpreter of a profile, tried on this machine; a node may differ."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Mapping

from perfsweep.slurm import batch
from perfsweep.slurm.job_outcome import SETUP_SIGN
from perfsweep.slurm.site import SiteProfile

TIMEOUT_S = 60.0

_HARMLESS = (
    "module",
    "ml",
    "source",
    ".",
    "export",
    "unset",
    "conda",
    "mamba",
    "micromamba",
    "spack",
    "ulimit",
)
"""Words that a line may begin with to be tried: it changes the shell, and nothing on a disk."""

_STARTED = "perfsweep: Python starts"


def rehearse(site: SiteProfile, env: Mapping[str, str]) -> list[str]:
    """Warn of the first set-up line that fails here, or of an interpreter that does not start after them.

    Lines that do something else than change the shell, or speak of the job, are not tried, nor what follows.
    """
    tried = _harmless(site.setup)
    start = site.python if site.python and len(tried) == len(site.setup) else None
    if start and shutil.which(shlex.split(start)[0]) is None and not tried:
        return [
            f"cluster.python={start}: {shlex.split(start)[0]} is not on this machine; probe=true asks a node"
        ]
    if not tried and not start:
        return []
    script = batch.rehearsal(tried)
    if start:
        script += f"\n{start} -c 'print(\"{_STARTED}\")'\n"
    try:
        done = subprocess.run(
            ["bash", "-c", script],
            env=dict(env),
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [f"cluster.setup or cluster.python did not end within {TIMEOUT_S:g} s on this machine"]
    return _warnings(start, done)


def _harmless(lines: list[str]) -> list[str]:
    kept: list[str] = []
    for line in lines:
        words = line.split()
        plain = not any(sign in line for sign in (";", "&", "|", ">", "`", "$(", "SLURM_"))
        if not words or words[0] not in _HARMLESS or not plain:
            break
        kept.append(line)
    return kept


def _warnings(start: str | None, done: subprocess.CompletedProcess[str]) -> list[str]:
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    if failed := [line for line in lines if line.startswith(SETUP_SIGN)]:
        said = [line for line in lines if line not in failed]
        why = f" ({said[-1]})" if said else ""
        return [f"on this machine {failed[0].removeprefix('perfsweep: ')}{why}; probe=true asks a node"]
    if start and _STARTED not in done.stdout:
        why = lines[-1] if lines else f"status {done.returncode}"
        return [f"cluster.python={start} does not start on this machine ({why}); probe=true asks a node"]
    return []
