"""Sources of samples. A source returns a failed query as a QueryResult with an error."""
