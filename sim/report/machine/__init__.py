"""Reports for programs: JSON, JUnit, trace events."""
