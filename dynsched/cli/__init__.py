"""The command line: commands, flags, and tables for the terminal."""
