"""Runs an exec plugin of a kubeconfig, as client-go does."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
from asyncio.subprocess import DEVNULL, PIPE
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from dynsched.kube.kubeconfig_file import Cluster, ExecPlugin
from dynsched.util.errors import KubeConfigError
from dynsched.util.formatting import one_line

_GROUP: Final = "client.authentication.k8s.io"
_VERSIONS: Final = (f"{_GROUP}/v1", f"{_GROUP}/v1beta1")


class Credential(msgspec.Struct, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


class _Answer(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    status: Credential


async def run_plugin(plugin: ExecPlugin, cluster: Cluster, ca: bytes) -> Credential:
    """The plugin's credentials for ``cluster``, whose CA is ``ca``. KubeConfigError."""
    if plugin.api_version not in _VERSIONS:
        raise KubeConfigError(f"exec has apiVersion {plugin.api_version}: use {_VERSIONS[0]}")
    at_terminal = os.isatty(0)
    if plugin.interactive_mode == "Always" and not at_terminal:
        raise KubeConfigError(f"the exec plugin {plugin.command} needs a terminal to prompt on")
    interactive = at_terminal and plugin.interactive_mode != "Never"
    spec: dict[str, Any] = {"interactive": interactive}
    if plugin.provide_cluster_info:
        spec["cluster"] = _cluster_info(cluster, ca)
    info = {"kind": "ExecCredential", "apiVersion": plugin.api_version, "spec": spec}
    environment = os.environ | {each.name: each.value for each in plugin.env}
    environment["KUBERNETES_EXEC_INFO"] = msgspec.json.encode(info).decode()
    return _decode(plugin, await _run(plugin, environment, interactive=interactive))


def _cluster_info(cluster: Cluster, ca: bytes) -> dict[str, Any]:
    optional = {
        "tls-server-name": cluster.tls_server_name,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        "certificate-authority-data": base64.b64encode(ca).decode(),
        "proxy-url": cluster.proxy_url,
        "disable-compression": cluster.disable_compression,
    }
    extensions = {each.name: each.extension for each in cluster.extensions}
    given = {name: value for name, value in optional.items() if value}
    return {"server": cluster.server, **given, "config": extensions.get(f"{_GROUP}/exec")}


async def _run(plugin: ExecPlugin, environment: dict[str, str], *, interactive: bool) -> bytes:
    """The plugin's standard output. Its errors and prompts go to the terminal, as with kubectl."""
    # As in kubectl, searched in our own PATH. Python would use the PATH passed to the plugin.
    found = shutil.which(plugin.command)
    if not found or not Path(found).is_absolute():
        why = "there is no such program, or it is not executable"
        raise _no_credentials(plugin, f"{why}. {plugin.install_hint}")
    try:
        process = await asyncio.create_subprocess_exec(
            plugin.command,
            *plugin.args,
            executable=found,
            env=environment,
            stdin=None if interactive else DEVNULL,
            stdout=PIPE,
        )
    except OSError as error:
        raise _no_credentials(plugin, f"{error.strerror}; run it by hand") from None
    except ValueError as error:  # a zero byte, or = in a variable's name
        raise _no_credentials(plugin, f"{error} in its args or env") from None
    try:
        printed, _ = await process.communicate()
    finally:
        if process.returncode is None:  # nobody waits for it any more
            process.kill()
    if process.returncode:
        raise _no_credentials(plugin, f"exit code {process.returncode}; run it by hand")
    return printed


def _decode(plugin: ExecPlugin, printed: bytes) -> Credential:
    try:
        answer = msgspec.json.decode(printed, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _no_credentials(plugin, "it printed no ExecCredential; run it by hand") from None
    found = answer.status
    if (answer.kind, answer.api_version) != ("ExecCredential", plugin.api_version):
        raise _no_credentials(plugin, f"it answered {answer.kind} of {answer.api_version}")
    pair = found.client_certificate_data, found.client_key_data
    if any(pair) != all(pair) or not (found.token or any(pair)):
        raise _no_credentials(plugin, "it printed neither a token nor a certificate with its key")
    return found


def _no_credentials(plugin: ExecPlugin, why: str) -> KubeConfigError:
    return KubeConfigError(one_line(f"the exec plugin {plugin.command} gave no credentials: {why}"))
