"""Which dynsched the flags of a command mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click
from click.core import ParameterSource

from dynsched.tools.running import Where

KUBECTL: Final = "kubectl"
"""The object of the click context under `kubectl dynsched`."""

FLAGS: Final = ("server", "server_token_file", "kubeconfig", "context", "namespace")


def where_of(
    context: click.Context, given: Mapping[str, Any], timeout: float | None = None
) -> Where:
    """From the values of ``FLAGS``. What was typed counts more than the environment: a cluster that
    is named on the command line is asked although DYNSCHED_SERVER is set, and this machine is not.
    UsageError where both are typed.
    """
    typed = {
        name for name in FLAGS if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    of_cluster = sorted(f"--{name}" for name in typed - {"server", "server_token_file"})
    if "server" in typed and of_cluster:
        raise click.UsageError(
            f"--server and {of_cluster[0]} contradict each other: --server is the URL of dynsched "
            "itself, the other one says in which cluster to look for it"
        )
    return Where(
        server=None if of_cluster else given["server"],
        token_file=given["server_token_file"],
        kubeconfig=given["kubeconfig"],
        context=given["context"],
        namespace=given["namespace"],
        # Who calls kubectl means the cluster of its current context.
        tries_local=not of_cluster and context.find_root().obj != KUBECTL,
        timeout=timeout,
    )
