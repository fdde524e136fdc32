"""A vLLM release as an engine: installed once, run in a child process, never imported here."""
