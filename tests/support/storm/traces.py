"""What a sweep must not leave behind: processes, temporary files, secrets, and words nobody can use."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from storm.invariants import Violation

TEMPORARY = re.compile(r"\.tmp$|\.save_tmp$|^\.publishing-|^\.[0-9a-f]{12}\.\d+$|^\.sources-.*\.\d+$")
"""Names under which files and folders are written before they get their own."""

NOT_OURS = (
    "Traceback (most recent call last)",
    "Exception ignored in",
    "Error executing job",
    "Fatal Python",
)
"""Words of an interpreter, not of a command."""

LOOSE = re.compile(r"^(\w+\.)*\w*(Error|Exception|Warning|Interrupt): ", re.MULTILINE)
"""An exception's own line where a sentence was due."""


WANDB_SOCKET = re.compile(r"^wandb-\d+-\d+-\d+$")
"""The folder in which W&B's client talks with its service, which removes it where it ends by itself."""


def leftovers(*folders: Path) -> Iterator[Violation]:
    """Files and folders that somebody was writing."""
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if TEMPORARY.search(path.name):
                yield Violation("temporary", f"{path} was left")
        for path in sorted(folder.glob("trials/*/*/scratch")):
            yield Violation("temporary", f"{path} was left")


def unempty(folder: Path, on_slurm: bool = False) -> Iterator[Violation]:
    """Anything in a folder for temporary files, but for torch's own cache, which outlives processes.

    Slurm kills a step with all that runs in it: nobody is left who could remove the socket of W&B's client.
    """
    for path in sorted(path for path in folder.iterdir() if not path.name.startswith("torchinductor_")):
        if not (
            on_slurm and WANDB_SOCKET.match(path.name) and {one.name for one in path.iterdir()} <= {"socket"}
        ):
            yield Violation("temporary", f"{path} was left")


def secrets(planted: Sequence[str], *folders: Path, allowed: Sequence[Path] = ()) -> Iterator[Violation]:
    """A secret in any file; `allowed` are the files whose business it is."""
    wanted = [text.encode() for text in planted]
    for folder in folders:
        for file in sorted(path for path in folder.rglob("*") if path.is_file() and path not in allowed):
            content = file.read_bytes()
            for number, text in enumerate(wanted):
                if text in content:
                    yield Violation("secret", f"{file} holds planted secret {number}")


def processes(mark: str, folder: Path) -> dict[int, str]:
    """Running processes that carry a mark in their environment, or a folder in their command line, by id."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line, state = (entry / "cmdline").read_bytes(), (entry / "stat").read_text()
            variables = (entry / "environ").read_bytes()
        except OSError:
            continue
        zombie = state.rpartition(")")[2].split()[0] in "ZX"
        if not zombie and (mark.encode() in variables or f"{folder}/".encode() in line):
            found[int(entry.name)] = line.replace(b"\0", b" ").decode(errors="replace").strip()
    return found


def words(text: str, where: str) -> Iterator[Violation]:
    """Output in which an interpreter speaks instead of a command."""
    if _before_main(text):
        return
    for sign in NOT_OURS:
        if sign in text:
            line = next(n for n, line in enumerate(text.splitlines(), 1) if sign in line)
            yield Violation("words", f"{where} line {line}: {sign}: {_last(text)}")
            return
    if match := LOOSE.search(text):
        yield Violation("words", f"{where} speaks as an exception: {text[match.start() :].splitlines()[0]}")


def _before_main(text: str) -> bool:
    """An interpreter that was interrupted while it started: no line of a command had run yet."""
    alone = text.startswith((NOT_OURS[0], NOT_OURS[3])) and text.count(NOT_OURS[0]) == 1
    return alone and _last(text) == "KeyboardInterrupt" and '/perfsweep/__main__.py"' not in text


DISK = re.compile(r"^(PermissionError|OSError): \[Errno (13|28|122)\]", re.MULTILINE)
"""What ends a trial's process where a fault has closed or filled its disk; the pack says it in a sentence."""

CHAINED = re.compile(r"\n(During handling|The above exception)[^\n]*\n\n" + re.escape(NOT_OURS[0]))
"""Between exceptions of which one brought about the other."""


def trial_words(text: str, users: str, where: str) -> Iterator[Violation]:
    """A trial's log in which something of ours raised; that of a user's module belongs there.

    On a full disk the log ends where the disk did.
    """
    for part in CHAINED.sub("", text).split(NOT_OURS[0])[1:]:
        if f"{users}/" not in part and not DISK.search(part):
            yield Violation("words", f"{where}: {_last(part)}")


def complaint(status: int, errors: str, where: str) -> Iterator[Violation]:
    """A command that ended with a mistake or by a fault of the machine: one line, which is a sentence."""
    lines = [line for line in errors.splitlines() if line.strip()]
    if status == 2 and len(lines) != 1:
        yield Violation("words", f"{where} ended with status 2 and {len(lines)} lines: {lines[:3]}")
    if status < 0 or status > 130:
        yield Violation("words", f"{where} ended with status {status}")


def _last(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")[:200]
