"""Profile trials: one arm, one tool, one process, apart from everything that is compared."""
