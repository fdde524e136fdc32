"""Explanations: where a wrong state came from, what was missed, and what would help."""
