"""The reference engine beside recorded decisions of real releases."""
