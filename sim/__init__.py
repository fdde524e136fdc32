"""The world that decides: scenarios, workloads, the reference engine and its cache, reports."""
