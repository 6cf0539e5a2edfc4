"""Whatever happens to a file, its reader says a sentence, or reads what was written: never another number.

`make fuzz MINUTES=10` goes on for that long with each kind.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from fuzzing import kinds
from fuzzing.damage import DAMAGES, Damage
from hypothesis import HealthCheck, Phase, given, seed, settings

from perfsweep.slurm.errors import ClusterError
from perfsweep.workloads.errors import PerfsweepError

EXAMPLES = int(os.environ.get("PERFSWEEP_FUZZ_EXAMPLES", "40"))
SEED = int(os.environ.get("PERFSWEEP_FUZZ_SEED", "1"))


def assert_a_sentence_or_no_damage(kind: kinds.FileKind, harm: Damage) -> None:
    """Damage the file, read it, and hold the reading against the whole one's."""
    kind.file.write_bytes(harm(kind.whole))
    try:
        found = kind.read()
    except (PerfsweepError, ClusterError) as error:
        assert str(error).strip(), "a sentence"
        assert len(str(error).splitlines()) == 1, str(error)
    else:
        assert kind.holds(found), f"{found} is not {kind.right}"
    finally:
        kind.file.write_bytes(kind.whole)


@pytest.fixture
def whole(tmp_path: Path) -> Callable[[str], kinds.FileKind]:
    return lambda name: kinds.fresh(name, tmp_path / name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(kinds.KINDS))
def test_damage_is_a_sentence_or_no_damage(name: str, whole: Callable[[str], kinds.FileKind]) -> None:
    kind = whole(name)

    @seed(SEED)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(DAMAGES)
    def one(harm: Damage) -> None:
        assert_a_sentence_or_no_damage(kind, harm)

    one()
