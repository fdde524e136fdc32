"""Scenario files: read, checked, told apart."""
