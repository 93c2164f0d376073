"""Where samples come from. Each source turns every failure into a QueryResult with an error."""
