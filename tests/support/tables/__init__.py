"""Toggles and claims of the four field reports as declarations: the contract is tested on real tables."""
