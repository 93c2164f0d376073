"""`dynsched` with its own intervals divided like those of its rules (`closedloop.faster`)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from closedloop.faster import hasten

from dynsched.__main__ import main

if __name__ == "__main__":
    hasten()
    main()
