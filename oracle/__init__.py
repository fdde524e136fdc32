"""The world that is true: what was launched runs on a memory of slots, and every claim is checked against it."""
