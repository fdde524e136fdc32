"""Engines that are not ours: events from elsewhere."""
