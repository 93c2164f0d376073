"""Features that subscribe to ticks. Each has a section of the rules and one pure computation."""
