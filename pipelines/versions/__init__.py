"""Versions of a user's code: what a commit, or the checkout as it is, has of it."""
