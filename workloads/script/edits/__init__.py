"""Edits of a script's source: pure functions of its text, which keep all that they do not change."""
