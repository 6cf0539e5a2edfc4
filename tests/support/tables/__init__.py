"""Toggles and claims of the four field reports as declarations, so that the contract is tested on real
tables."""
