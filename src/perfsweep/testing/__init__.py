"""Helpers for your own tests."""
