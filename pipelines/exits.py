"""Exit statuses of the commands."""

from __future__ import annotations

DONE = 0
SOME_FAILED = 1
"""Some trials, packs or publications failed, or an arm became slower."""

MISTAKE = 2
"""In the command or its input."""

ATTENTION = 3
"""Nothing more will happen by itself: a job is held, or cannot start."""

UNDECIDED = 4
"""What was measured does not answer the question."""

INTERRUPTED = 130
