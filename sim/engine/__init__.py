"""The reference engine: a scheduler in the order of vLLM V1, every difference between releases a rule."""
