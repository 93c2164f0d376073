"""``python -m dynsched`` is the same as ``dynsched``."""

from dynsched.cli import main

main()
