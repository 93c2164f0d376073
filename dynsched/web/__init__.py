"""HTTP endpoints, which answer from the last tick in memory."""
