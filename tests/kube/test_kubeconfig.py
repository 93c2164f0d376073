"""Which API server and user are chosen: where the configuration is found, and its errors."""

import os
import shutil
from pathlib import Path

import pytest
import yaml
from api_support import kubeconfig
from certificates import Authority

from dynsched.kube import kubeconfig as kube_config
from dynsched.kube.kubeconfig import load_config
from dynsched.util.errors import KubeConfigError


@pytest.fixture
def no_config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The home directory of a machine without any configuration."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(kube_config, "SERVICE_ACCOUNT", tmp_path / "serviceaccount")
    return tmp_path


def service_account(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set up a service account and its environment, as in a pod."""
    account = folder / "serviceaccount"
    account.mkdir()
    (account / "token").write_text("pod-secret\n")
    shutil.copy(Authority(folder, "ca").cert, account / "ca.crt")
    (account / "namespace").write_text("watchers\n")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    return account


async def test_a_pod_uses_its_service_account(no_config, monkeypatch) -> None:
    account = service_account(no_config, monkeypatch)
    found = await load_config()
    assert found.server == "https://10.96.0.1:443"
    assert found.namespace == "watchers"
    assert found.headers == (("Authorization", "Bearer pod-secret"),)
    assert found.refresh_at is not None
    assert "pod-secret" not in repr(found)
    (account / "token").write_text("next-secret")
    assert (await found.reload()).headers == (("Authorization", "Bearer next-secret"),)
    (account / "token").write_text("")
    with pytest.raises(KubeConfigError, match=r"service account .*empty"):
        await load_config()


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({}, "exit code 1"),
        ({"command": "/bin/gone"}, "no such program"),
        ({"command": "/bin/fal\0se"}, "no such program"),
        ({"args": ["a\0b"]}, "null byte in its args or env"),
        ({"env": [{"name": "A", "value": "a\0b"}]}, "null byte in its args or env"),
        ({"env": [{"name": "A=B", "value": "a"}]}, "variable name in its args or env"),
    ],
)
async def test_the_error_names_an_exec_plugin_that_fails(tmp_path: Path, more, why) -> None:
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never"}
    user = {"exec": {**plugin, "command": "/bin/false", **more}}
    file = kubeconfig(tmp_path / "k", "https://127.0.0.1:1", user=user)
    with pytest.raises(KubeConfigError, match=rf"exec plugin /bin/\w.* gave no .*{why}") as refused:
        await load_config(file)
    assert str(refused.value).isprintable()


async def test_the_kubeconfig_is_found_in_the_usual_places(
    no_config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (no_config / ".kube").mkdir()
    kubeconfig(no_config / ".kube" / "config", "http://home")
    assert (await load_config()).server == "http://home"
    assert (await load_config()).namespace == "ns"
    kubeconfig(no_config / "other", "http://other")
    monkeypatch.setenv("KUBECONFIG", f"{no_config / 'missing'}:{no_config / 'other'}")
    assert (await load_config()).server == "http://other"
    kubeconfig(no_config / "named", "http://someone:hidden@named/")
    assert (await load_config(str(no_config / "named"))).server == "http://named"


async def test_without_any_configuration_the_error_names_the_places_searched(
    no_config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KubeConfigError) as missing:
        await load_config()
    error = str(missing.value)
    assert str(no_config / "serviceaccount") in error
    assert str(no_config / ".kube" / "config") in error
    assert "--kubeconfig" in error
    assert "\n" not in error
    with pytest.raises(KubeConfigError, match="gone: no such file; check --kubeconfig"):
        await load_config(str(no_config / "gone"))
    monkeypatch.setenv("KUBECONFIG", "/nowhere/config")
    with pytest.raises(KubeConfigError, match="KUBECONFIG=/nowhere/config names no file"):
        await load_config()


@pytest.mark.parametrize(
    "text",
    [
        "a: [",
        "",
        "[]",
        "rules: []\n",
        "clusters: []\ncontexts: [{name: a}, {name: b}]\n",
        "clusters: []\ncontexts: [{name: real}]\nusers: []\ncurrent-context: gone\n",
        "current-context: gone\n",
    ],
)
async def test_the_error_of_a_broken_kubeconfig_is_one_line_with_its_path(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "k"
    path.write_text(text)
    with pytest.raises(KubeConfigError) as broken:
        await load_config(str(path))
    assert str(path) in str(broken.value)
    assert "\n" not in str(broken.value)


async def test_a_context_other_than_the_current_one_can_be_chosen(no_config, monkeypatch) -> None:
    file = kubeconfig(no_config / "k", "http://first")
    config = yaml.safe_load(file.read_text())
    config["clusters"] += [{"name": "other", "cluster": {"server": "http://second"}}]
    of_second = {"cluster": "other", "user": "u", "namespace": "ns-second"}
    config["contexts"] += [{"name": "second", "context": of_second}]
    file.write_text(yaml.safe_dump(config))
    path = str(file)
    assert (await load_config(path)).server == "http://first"
    found = await load_config(path, "second")
    assert (found.server, found.namespace) == ("http://second", "ns-second")
    assert (await found.reload()).server == "http://second"
    first = await load_config(path)
    file.write_text(yaml.safe_dump({**config, "current-context": "second"}))
    assert (await load_config(path)).cluster == "second (http://second)"
    assert (await first.reload()).server == "http://first"  # a running process keeps its context
    file.write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", path)
    assert (await load_config(None, "second")).server == "http://second"
    service_account(no_config, monkeypatch)  # a context is that of the kubeconfig also in a pod
    assert (await load_config(None, "second")).server == "http://second"
    with pytest.raises(KubeConfigError) as broken:
        await load_config(path, "third")
    error = f"kubeconfig {path}: there is no context named third; there are: second, x"
    assert error in str(broken.value)


async def test_the_error_of_a_broken_kubeconfig_contains_no_secret(tmp_path: Path) -> None:
    user = {
        "auth-provider": {"name": "oidc", "config": {"refresh-token": "hush", "id-token": ""}},
    }
    path = kubeconfig(tmp_path / "k", "https://127.0.0.1:1", user=user)
    text = path.read_text()
    values = "hush", "hush: x", "[hush", "*hush", "!hush", "!hush! x", "!<hush> x", "!hu'sh"
    for broken in (text.replace("hush", value) for value in values):
        path.write_text(broken)
        with pytest.raises(KubeConfigError) as error:
            await load_config(str(path))
        assert "hush" not in str(error.value)


async def test_ca_data_without_a_certificate_is_an_error_instead_of_using_public_cas(
    tmp_path,
) -> None:
    path = kubeconfig(tmp_path / "k", "https://127.0.0.1:1")
    config = yaml.safe_load(path.read_text())
    config["clusters"][0]["cluster"]["certificate-authority-data"] = "//79"  # not ASCII
    path.write_text(yaml.safe_dump(config))
    with pytest.raises(KubeConfigError, match="the CA's data holds no certificate in PEM form"):
        await load_config(str(path))


async def test_the_error_of_an_unreadable_file_advises_to_run_as_its_owner(tmp_path) -> None:
    """In a container, the image's user is not the owner of ~/.kube/config."""
    path = kubeconfig(tmp_path / "config", "https://127.0.0.1:6443")
    path.chmod(0)
    was = os.geteuid()
    os.seteuid(was or 65534)  # root may read everything
    try:
        with pytest.raises(KubeConfigError, match="Permission denied; run as its owner"):
            await load_config(path)
    finally:
        os.seteuid(was)
