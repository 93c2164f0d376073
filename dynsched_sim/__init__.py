"""A small cluster in one process: what `dynsched demo` and the tests run against."""
