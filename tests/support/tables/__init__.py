"""Toggles of the four field reports: the contract is tested on real tables."""
