"""A command line as a job: whole runs of any program, with toggles and evidence written as data."""
