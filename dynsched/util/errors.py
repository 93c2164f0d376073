"""Errors outside the core, one class for each case that callers handle differently. Each message is
one line for people: what failed, where, and what to do.
"""

from __future__ import annotations


class ExpectedError(Exception):
    """A problem that people can fix; the message says how. Any other exception is a bug."""


class ClusterError(ExpectedError):
    """The API server refused, or could not be reached. The message names the call and the cause."""


class KubeConfigError(ClusterError):
    """No usable kubeconfig or service account."""


class ConflictError(ClusterError):
    """409: the object changed since it was read. Read it and plan again."""


class NotFoundError(ClusterError):
    """404: the object does not exist, or was deleted since it was read."""


class NotPermittedError(ClusterError):
    """A write was not sent: this process does not hold the Lease, or it is a dry run."""


class PastUnknownError(Exception):
    """The history of a rule is not available. The message names the source and the cause."""


class ForbiddenError(ClusterError):
    """403: the message names the verb and the resource that the role lacks."""
