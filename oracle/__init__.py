"""Oracle: what was launched runs on a memory of slots of its own, and every claim is checked against that."""
