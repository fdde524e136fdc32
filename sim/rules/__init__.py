"""Rule values: pure answers to the questions in which releases differ; no cache, no engine."""
