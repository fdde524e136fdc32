"""The prefix cache: a pool of blocks under hashes, block tables per group, and the joint lookup."""
