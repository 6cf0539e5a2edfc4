"""What an arm is: a hash over everything that decides what it computes and how it is timed."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfsweep.pipelines.store.trial_schema import SCHEMA
from perfsweep.workloads import registry
from perfsweep.workloads.api import Declaration


def code_digest(cls: type[Declaration]) -> str:
    """Digest of the workload's sources, the contract, shared toggles and all of this folder."""
    return registry.digest([*registry.sources(cls), *sorted(Path(__file__).parent.rglob("*.py"))])


def arm_id(workload: str, config: Any, levels: Mapping[str, Any], code: str) -> str:
    """First 16 hex digits of SHA-256 over canonical JSON, without the seed and facts of the machine."""
    identity = {
        "workload": workload,
        "config": dataclasses.asdict(config),
        "levels": dict(levels),
        "code": code,
        "schema": SCHEMA,
    }
    return hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()[:16]
