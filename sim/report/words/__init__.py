"""Words that reports of every kind share."""
