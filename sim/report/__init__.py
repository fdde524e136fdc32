"""What a run came to, for people and machines: tables, JSON, JUnit, timelines, pictures, traces, progress."""
