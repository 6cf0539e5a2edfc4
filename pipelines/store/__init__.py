"""The files of a sweep: no other package knows their names and schemas."""
