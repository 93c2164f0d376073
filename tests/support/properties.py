"""The number of examples for a Hypothesis property."""

from hypothesis import settings


def steady(examples: int) -> settings:
    """``examples`` in `make test`; in `make test-all`, scaled up like its profile."""
    profiles = (settings(), settings.get_profile("quick"))
    now, quick = (profile.max_examples for profile in profiles)
    return settings(max_examples=examples * now // quick)
