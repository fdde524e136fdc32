"""Sweeps: a scenario at many points, under many seeds, in many processes, with a row for each run."""
