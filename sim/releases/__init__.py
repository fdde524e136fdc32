"""Releases as tables of rules."""
