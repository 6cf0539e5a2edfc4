"""The typed options of all commands, and where their values come from."""
