"""Names that folders have, each with something that a URL, a shell, Hydra or Slurm reads otherwise."""

from __future__ import annotations

NAMES = (
    "my work",
    "jdoe@ad.example.org",
    "c++",
    "päck",
    "a,b",
    "50%j",
    "it's",
    'a"b',
    "[x]",
    "a\\",
    "new\nline",
)
