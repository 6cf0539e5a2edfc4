"""Damages files of each kind at random for as long as asked, with a new seed for every thousand examples.

make fuzz MINUTES=10 KIND=record SEED=1
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time

from fuzzing import kinds

EXAMPLES = 1000


def main() -> int:
    """Prints a table of kinds and examples; status 1 at the first reading that is wrong, with its seed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="for each kind")
    parser.add_argument("--kind", choices=sorted(kinds.KINDS), help="default: all, one after the other")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print("| file | damaged | read wrongly |\n|---|---|---|")
    for name in [options.kind] if options.kind else sorted(kinds.KINDS):
        seed, end = options.seed, time.monotonic() + 60 * options.minutes
        while time.monotonic() < end:
            if status := damaged(name, seed):
                print(f"seed {seed} of {name}: repeat it with --kind {name} --seed {seed}")
                return status
            seed += 1
        print(f"| {name} | {(seed - options.seed) * EXAMPLES:,} | 0 |", flush=True)
    return 0


def damaged(name: str, seed: int) -> int:
    """A thousand examples of a kind with one seed."""
    env = os.environ | {"PERFSWEEP_FUZZ_EXAMPLES": str(EXAMPLES), "PERFSWEEP_FUZZ_SEED": str(seed)}
    test = f"tests/pipelines/store/test_damaged_files.py::test_damage_is_a_sentence_or_no_damage[{name}]"
    words = [sys.executable, "-m", "pytest", "-n0", "-q", "-p", "no:cacheprovider", test]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout[-6000:])
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
