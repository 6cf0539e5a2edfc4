"""The commands of the console: one module each, which calls the stages in order and says how it ended."""
