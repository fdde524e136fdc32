"""Reports of a run, for people and machines: tables, JSON, JUnit, timelines, pictures, traces, progress."""
