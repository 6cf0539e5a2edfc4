"""Everything that runs in a measured process, and nothing else: an arm's identity hashes this folder."""
