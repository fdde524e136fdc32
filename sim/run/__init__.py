"""One run: a scenario, decided by an engine, heard by an oracle, told as a result."""
