"""Other tools on the same plants: who finds what was planted, and who calls equal arms different."""
