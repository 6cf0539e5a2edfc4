"""Whether a W&B server can be used from here: its address, the account's credentials, one quick question.

Works without wandb, so that a command that is about to measure answers within two seconds.
"""

from __future__ import annotations

import base64
import configparser
import http.client
import json
import netrc
import os
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from perfsweep.pipelines.config.tracking import CHOSEN_SERVER, CREDENTIALS
from perfsweep.pipelines.store.options import TrackingConfig

PROBE_S = 1.5
"""Time a server has for its answer, name resolution included."""

_VIEWER = "query Viewer { viewer { id entity username teams { edges { node { name } } } } }"
_SHORTEST_KEY = 40
_OLDER_DEFAULT = "https://api.wandb.ai"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Account:
    """What the probe found out: the default entity, or one sentence why nothing can be uploaded."""

    entity: str | None = None
    problem: str | None = None


def address(tracking: TrackingConfig, shell: Mapping[str, str]) -> str:
    """The server's base URL: configured, of the shell, of W&B's own settings file, or W&B's default."""
    chosen = tracking.base_url or shell.get("WANDB_BASE_URL") or _configured(shell)
    if not chosen:
        from wandb.sdk.lib import urls

        chosen = getattr(urls, "DEFAULT_BASE_URL", _OLDER_DEFAULT)  # it changes between versions of wandb
    return chosen.rstrip("/")


def key_may_go_to(url: str, shell: Mapping[str, str]) -> bool:
    """Whether credentials of the shell are for a server: one that the user chose, not only a sweep's folder.

    A folder may come from others. The user chooses by the shell, by W&B's settings file, or by the
    configuration of a sweep that is measured from here.
    """
    return url.rstrip("/") in (shell.get(CHOSEN_SERVER, "").rstrip("/"), address(TrackingConfig(), shell))


def api_key(url: str, shell: Mapping[str, str]) -> str | None:
    """The key of an account on a server, from the shell or netrc, where W&B names a server with its port.

    The shell's key goes only where `key_may_go_to` says, and none goes over a network in plain text.
    """
    if _readable_on_the_way(url):
        return None
    if (key := shell.get("WANDB_API_KEY")) and key_may_go_to(url, shell):
        return key
    file = Path(shell.get("NETRC") or Path.home() / ".netrc")
    try:
        found = netrc.netrc(str(file)).authenticators(urlsplit(url).netloc)
    except (OSError, netrc.NetrcParseError):
        return None
    return (found[2] or None) if found else None


def probe(
    tracking: TrackingConfig, shell: Mapping[str, str] = os.environ, seconds: float = PROBE_S
) -> Account:
    """Ask the server who the account is; never longer than `seconds`, whatever the network does."""
    url = address(tracking, shell)
    key = api_key(url, shell)
    by_token = shell.get("WANDB_IDENTITY_TOKEN_FILE") and key_may_go_to(url, shell)
    if key is None and (_readable_on_the_way(url) or not by_token):
        return Account(problem=_without_key(url, shell))
    if key is not None and len(key) < _SHORTEST_KEY:
        return Account(
            problem=f"the API key for {url} has {len(key)} characters and needs {_SHORTEST_KEY}; log in again"
        )
    answers: list[Account] = []
    # A thread, because resolving a name cannot be given a time limit.
    asking = threading.Thread(
        target=lambda: answers.append(_ask(url, key, tracking.entity, seconds)), daemon=True
    )
    asking.start()
    asking.join(seconds)
    return answers[0] if answers else Account(problem=_silent(url, seconds))


def _readable_on_the_way(url: str) -> bool:
    """Whether what is sent to an address crosses a network in plain text."""
    parts = urlsplit(url)
    return parts.scheme != "https" and parts.hostname not in _LOOPBACK


def _without_key(url: str, shell: Mapping[str, str]) -> str:
    if _readable_on_the_way(url):
        return f"{url} is plain http, which shows the API key to the network; write it as https://HOST"
    if any(shell.get(name) for name in CREDENTIALS) and not key_may_go_to(url, shell):
        return (
            f"the sweep names {url}, which your API key is not for; WANDB_BASE_URL={url} sends it there,"
            f" or run `wandb login --host {url}`"
        )
    return f"no API key for {url}; run `wandb login --host {url}` or set WANDB_API_KEY"


def _silent(url: str, seconds: float) -> str:
    return f"{url} gave no answer within {seconds:g} s"


def _ask(url: str, key: str | None, entity: str | None, seconds: float) -> Account:
    question = json.dumps({"query": _VIEWER, "operationName": "Viewer"}).encode()
    request = urllib.request.Request(f"{url}/graphql", question)
    request.add_header("Content-Type", "application/json")
    if key is not None:
        request.add_header("Authorization", "Basic " + base64.b64encode(f"api:{key}".encode()).decode())
    try:
        with urllib.request.urlopen(request, timeout=seconds) as response:
            answer = json.load(response)
    except urllib.error.HTTPError as error:
        status = 401 if error.code == 403 else error.code  # what is asked for is the account: it is the key
        problem = f"{url} {status_sentence(status)}".replace("(401)", f"({error.code})")
    except urllib.error.URLError as error:
        problem = f"{url} cannot be reached ({_reason(error)}); check the network or tracking.base_url"
    except TimeoutError:
        problem = _silent(url, seconds)
    except ConnectionError:
        problem = f"{url} dropped the connection; is a W&B server there?"
    except (OSError, ValueError, http.client.HTTPException):
        problem = f"{url} gave half an answer; is a W&B server there?"
    else:
        return _account(answer, url, entity, anonymous=key is None)
    return Account(problem=problem)


def _account(answer: object, url: str, entity: str | None, *, anonymous: bool) -> Account:
    data = answer.get("data") if isinstance(answer, dict) else None
    viewer = data.get("viewer") if isinstance(data, dict) else None
    if not viewer:
        # An identity token is exchanged by wandb itself: the server is there, more cannot be known here.
        return (
            Account()
            if anonymous
            else Account(problem=f"{url} does not know the account of the API key; log in again")
        )
    edges = (viewer.get("teams") or {}).get("edges") or []
    own = [viewer.get("entity"), viewer.get("username"), *(edge["node"]["name"] for edge in edges)]
    if entity and entity not in own:
        choices = ", ".join(dict.fromkeys(name for name in own if name))
        return Account(
            problem=f"tracking.entity={entity} is not open to your account on {url}; choose from: {choices}"
        )
    return Account(entity=entity or viewer.get("entity"))


def _reason(error: urllib.error.URLError) -> str:
    reason = error.reason
    return (reason.strerror or str(reason)) if isinstance(reason, OSError) else str(reason)


def _configured(shell: Mapping[str, str]) -> str | None:
    folder = Path(shell.get("WANDB_CONFIG_DIR") or Path.home() / ".config" / "wandb")
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read(folder / "settings")
    except (configparser.Error, UnicodeDecodeError):
        return None  # damaged: wandb ignores it too
    return parser.get("default", "base_url", fallback=None)


_REMEDIES = {
    401: "refused the API key (401); log in again with `wandb login`",
    403: "permitted no access (403); check tracking.entity and tracking.project",
    409: "knows the run otherwise (409)",
    413: "refused a request as too large (413); raise the limit of the server or of the proxy before it",
    429: "limits the rate of requests (429); publish again later, or with tracking.uploads=1",
}
_STATUS = re.compile(r'"status":(\d{3})|HTTP (\d{3})')


def status_sentence(status: int) -> str:
    """Say what an HTTP status means for a user who publishes, and what to do."""
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
