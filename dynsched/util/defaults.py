"""What is shown in the help of flags, and needed where they are obeyed."""

from __future__ import annotations

from typing import Final

MAX_ROWS: Final = 20
"""How many values `plan` shows unless all are asked for."""
