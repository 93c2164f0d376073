"""dynsched: watches the real load of every node and tells the scheduler which ones to avoid."""

from importlib.metadata import version

__version__ = version("dynsched")
