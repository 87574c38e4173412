"""The command line: one verb per file. Each parses, opens a door, calls, prints, and exits."""
