"""Errors outside of the core, one class for each that callers handle differently. Each message is
one line for a person: what, where, what to do.
"""

from __future__ import annotations


class ExpectedError(Exception):
    """What a person can mend; the message says how. Any other exception is a bug."""


class ClusterError(ExpectedError):
    """The API server refused, or could not be reached. The message names the call and the cause."""


class KubeConfigError(ClusterError):
    """No usable configuration."""


class ConflictError(ClusterError):
    """409: the object is not as it was observed; read it again and plan again."""


class NotFoundError(ClusterError):
    """404: the object was deleted since it was observed."""


class NotPermittedError(ClusterError):
    """A write was not sent: this process lost the Lease, or it is a dry run."""


class PastUnknownError(Exception):
    """The past of a rule's expression cannot be had. The message names the source and the cause."""


class ForbiddenError(ClusterError):
    """403: the message names the verb and the resource that the role lacks."""
