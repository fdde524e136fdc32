"""The physical model: what a worker reads, writes and copies."""
