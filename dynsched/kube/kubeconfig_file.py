"""Reads a kubeconfig as client-go, and so kubectl, does: files are merged, the first file that has
a name wins, null counts as absent, and paths are relative to the file's folder.
"""

from __future__ import annotations

import os
import re
from collections import ChainMap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import yaml

from dynsched.util.errors import KubeConfigError
from dynsched.util.files import read_stream

_MAX_BYTES: Final = 16 * 1024 * 1024
_MODES: Final = ("Never", "IfAvailable", "Always")
_QUOTED_WORD: Final = re.compile(r" (?:'[^']{2,}'|\"[^\"]{2,}\")")


class _Loader(yaml.SafeLoader):
    """Reads YAML as Go does: dates, times and ``=`` are strings, and the last value of a key
    counts, whether merged by ``<<`` or not.
    """

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        pairs = []
        for pair in node.value:
            alone = yaml.MappingNode(node.tag, [pair])
            super().flatten_mapping(alone)
            pairs += alone.value
        node.value = pairs

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> str:
        tag: str = super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]
        is_scalar = kind is yaml.ScalarNode
        is_text = is_scalar and (":" in value or tag.endswith((":timestamp", ":value")))
        return self.DEFAULT_SCALAR_TAG if is_text else tag


class Variable(msgspec.Struct):
    name: str = ""
    value: str = ""


class ExecPlugin(msgspec.Struct, rename="camel"):
    command: str = ""
    api_version: str = ""
    args: list[str] = []
    env: list[Variable] = []
    interactive_mode: str = ""
    provide_cluster_info: bool = False
    install_hint: str = ""

    def __post_init__(self) -> None:
        if self.api_version.endswith("/v1beta1"):  # v1 has no default
            self.interactive_mode = self.interactive_mode or "IfAvailable"


class User(msgspec.Struct, rename="kebab"):
    token: str = ""
    token_file: str = msgspec.field(name="tokenFile", default="")
    username: str = ""
    password: str = ""
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    as_user: str = msgspec.field(name="as", default="")
    as_uid: str = ""
    as_groups: list[str] = []
    as_user_extra: dict[str, list[str]] = {}
    auth_provider: dict[str, Any] | None = None
    exec: ExecPlugin | None = None


class Extension(msgspec.Struct):
    name: str = ""
    extension: Any = None


class Cluster(msgspec.Struct, rename="kebab"):
    server: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    proxy_url: str = ""
    disable_compression: bool = False
    extensions: list[Extension] = []


class Context(msgspec.Struct):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(msgspec.Struct):
    name: str = ""
    cluster: Cluster = msgspec.field(default_factory=Cluster)


class _NamedUser(msgspec.Struct):
    name: str = ""
    user: User = msgspec.field(default_factory=User)


class _NamedContext(msgspec.Struct):
    name: str = ""
    context: Context = msgspec.field(default_factory=Context)


class _File(msgspec.Struct, rename="kebab"):
    current_context: str = ""
    clusters: list[_NamedCluster] = []
    users: list[_NamedUser] = []
    contexts: list[_NamedContext] = []


class Chosen(NamedTuple):
    """The name of a context, and what the context refers to."""

    context: str | None
    namespace: str
    cluster: Cluster
    user: User


def choose(paths: Sequence[str], context: str | None) -> Chosen | None:
    """Resolve the context of that name, or else the current one. None if no file exists.
    KubeConfigError.
    """
    files = [file for path in dict.fromkeys(paths) if path and (file := _read(path)) is not None]
    if not files:
        return None
    source = f"kubeconfig {os.pathsep.join(paths)}"
    contexts = ChainMap(*({each.name: each.context for each in file.contexts} for file in files))
    clusters = ChainMap(*({each.name: each.cluster for each in file.clusters} for file in files))
    users = ChainMap(*({each.name: each.user for each in file.users} for file in files))
    name = context or next(filter(None, (file.current_context for file in files)), None)
    if name is None:
        raise KubeConfigError(f"{source}: it has no current-context; choose one with --context")
    if name not in contexts:
        known = ", ".join(sorted(contexts)) or "none"
        raise KubeConfigError(f"{source}: there is no context named {name}; there are: {known}")
    wanted = contexts[name]
    cluster = clusters.get(wanted.cluster, Cluster())
    # A missing user means no credentials, as in kubectl.
    user = users.get(wanted.user, User())
    if problems := "; ".join(_problems(cluster, user)):
        raise KubeConfigError(f"{source}: context {name}: {problems}")
    return Chosen(name, wanted.namespace, cluster, user)


def _read(path: str) -> _File | None:
    """One file, with its paths made absolute; None if it does not exist."""
    try:
        file = msgspec.convert(_without_nulls(_parse(read_stream(path, _MAX_BYTES))) or {}, _File)
    except FileNotFoundError:
        return None
    except OSError as error:
        forbidden = isinstance(error, PermissionError)
        remedy = "; run as its owner (docker run --user)" if forbidden else ""
        raise KubeConfigError(f"kubeconfig {path}: {error.strerror or error}{remedy}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # Never show the text of a YAMLError: it quotes the file, including secrets.
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        if problem:  # it quotes an alias or a tag: a password like *secret or !secret
            problem = _QUOTED_WORD.sub("", problem)
        where = f":{mark.line + 1}" if mark else ""
        why = error if isinstance(error, msgspec.ValidationError) else problem or "it is not text"
        raise KubeConfigError(f"kubeconfig {path}{where}: not a kubeconfig: {why}") from None
    for kind in (file.clusters, file.users, file.contexts):
        names = [each.name for each in kind]
        if twice := {name for name in names if names.count(name) > 1}:
            raise KubeConfigError(f"kubeconfig {path}: the name {min(twice)} occurs twice")
    folder = Path(path).absolute().parent
    for cluster in (each.cluster for each in file.clusters):
        _make_absolute(cluster, ("certificate_authority",), folder)
    for user in (each.user for each in file.users):
        _make_absolute(user, ("client_certificate", "client_key", "token_file"), folder)
        if user.exec and os.sep in user.exec.command:  # else it is looked up in PATH
            _make_absolute(user.exec, ("command",), folder)
    return file


def _parse(content: bytes) -> Any:
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):  # in YAML, the first document counts
        return next(yaml.load_all(content, _Loader), None)


def _make_absolute(part: msgspec.Struct, fields: Iterable[str], folder: Path) -> None:
    for field in fields:
        if path := getattr(part, field):
            setattr(part, field, os.path.normpath(folder / path))


def _without_nulls(found: Any) -> Any:
    """Remove nulls, which Go treats as absent. Extensions stay as they are: others define them."""
    if isinstance(found, dict):
        return {
            key: value if key == "extension" else _without_nulls(value)
            for key, value in found.items()
            if value is not None
        }
    return [_without_nulls(each) for each in found] if isinstance(found, list) else found


def _problems(cluster: Cluster, user: User) -> list[str]:
    """The problems that kubectl refuses too."""
    ca = cluster.certificate_authority, cluster.certificate_authority_data
    cert = user.client_certificate, user.client_certificate_data
    key = user.client_key, user.client_key_data
    token = user.token, user.token_file
    plugin = user.exec
    wrong = {
        "its cluster has no server": not cluster.server,
        "certificate-authority and certificate-authority-data are both given": all(ca),
        "insecure-skip-tls-verify contradicts certificate-authority": (
            cluster.insecure_skip_tls_verify and any(ca)
        ),
        "client-certificate and client-certificate-data are both given": all(cert),
        "client-key and client-key-data are both given": any(cert) and all(key),
        "client-certificate needs client-key": any(cert) and not any(key),
        "a token and a username or password are both given": (
            (user.token and user.password) or (any(token) and user.username)
        ),
        "as-uid, as-groups and as-user-extra need as": (
            (user.as_uid or user.as_groups or user.as_user_extra) and not user.as_user
        ),
        "exec and auth-provider are both given": plugin and user.auth_provider,
        "exec has a variable without a name": plugin and not all(v.name for v in plugin.env),
        "exec needs command and apiVersion": plugin and not (plugin.command and plugin.api_version),
        f"exec needs interactiveMode: {', '.join(_MODES)}": (
            plugin and plugin.interactive_mode not in _MODES
        ),
    }
    return [problem for problem, is_so in wrong.items() if is_so]
