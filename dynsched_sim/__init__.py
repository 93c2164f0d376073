"""A small simulated cluster in one process, used by `dynsched demo` and the tests."""
