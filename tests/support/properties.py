"""How many examples a property is tried on."""

from hypothesis import settings


def steady(examples: int) -> settings:
    """So many in `make test`, and in `make test-all` as many times more as its profile has."""
    profiles = (settings(), settings.get_profile("quick"))
    now, quick = (profile.max_examples for profile in profiles)
    return settings(max_examples=examples * now // quick)
