"""Why a server did not take what was sent: W&B's client says so in its log alone, and ends as usual."""

from __future__ import annotations

import re
from pathlib import Path

_REMEDIES = {
    401: "refused the API key (401); log in again with `wandb login`",
    403: "permitted no access (403); check tracking.entity and tracking.project",
    409: "knows the run otherwise (409)",
    413: "refused a request as too large (413); raise the limit of the server or of the proxy before it",
    429: "limits the rate of requests (429); publish again later, or with tracking.uploads=1",
}
_STATUS = re.compile(r'"status":(\d{3})|HTTP (\d{3})')


def status_sentence(status: int) -> str:
    """Say what an HTTP status means for somebody who publishes, and what to do."""
    return _REMEDIES.get(status, f"answered with status {status}; try again later")


def refusal_in(folder: Path) -> str | None:
    """The last refusal in the logs of W&B's client below a folder, as a phrase; None where there is none."""
    logs = sorted(folder.rglob("debug-internal.log"), key=lambda file: file.stat().st_mtime)
    found = [status for log in logs for status in _statuses(log)]
    return f"W&B {status_sentence(found[-1])}" if found else None


def _statuses(log: Path) -> list[int]:
    lines = log.read_text(errors="replace").splitlines()
    refused = [line for line in lines if '"level":"ERROR' in line or "retrying HTTP error" in line]
    return [int(match[1] or match[2]) for line in refused for match in _STATUS.finditer(line)]
