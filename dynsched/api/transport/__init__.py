"""HTTP below the answers: limits on connections, on sizes and on times."""
