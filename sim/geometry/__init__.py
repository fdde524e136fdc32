"""Block sizes and bytes of hybrid models, derived as vLLM does from a model's config file and a server's flags."""
