"""The files of a sweep: nobody else knows their names and schemas."""
