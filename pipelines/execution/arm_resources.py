"""What packs ask for because of the arms that they measure, instead of what the site profile says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfsweep.pipelines.config.types import ClusterConfig
from perfsweep.pipelines.store.records import Manifest, Pack

_WORDS = {True: "on", False: "off"}


def resources_of(manifest: Manifest, pack: Pack, cluster: ClusterConfig) -> dict[str, Any]:
    """Look up the fields of the site profile that are different for a pack; the last rule that fits wins."""
    levels = [manifest.arm(arm).levels for arm in pack.arms]
    found: dict[str, Any] = {}
    for rule in cluster.arm_resources:
        if any(_has(arm, rule.levels) for arm in levels):
            found |= rule.asked
    return found


def unused(cluster: ClusterConfig, manifest: Manifest) -> list[str]:
    """Warn of rules that are about no arm of a sweep, whose levels may be misspelt."""
    return [
        f"cluster.arm_resources: no arm of this sweep has {_shown(rule.levels)}, so that rule changes nothing"
        for rule in cluster.arm_resources
        if not any(_has(arm.levels, rule.levels) for arm in manifest.arms)
    ]


def _has(arm: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(str(arm.get(name)) == _written(level) for name, level in wanted.items())


def _shown(levels: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_written(level)}" for name, level in levels.items())


def _written(level: Any) -> str:
    """A level as a person wrote it: YAML reads on and off as booleans."""
    return _WORDS[level] if isinstance(level, bool) else str(level)
