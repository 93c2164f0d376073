"""How property tests are run here: the same examples every time, so that CI is stable.

``DYNSCHED_RANDOM=20 pytest tests/core`` tries twenty times as many, and other ones each time.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

TIMES = int(os.environ.get("DYNSCHED_RANDOM", "0"))


def steady(examples: int) -> settings:
    """So many examples, no deadline (the machine may be busy), nothing kept between runs."""
    return settings(
        max_examples=examples * max(1, TIMES),
        derandomize=not TIMES,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
