"""From a model's config file and a server's flags to block sizes and bytes, as vLLM derives them for hybrid models."""
