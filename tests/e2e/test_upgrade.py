"""From the previous version to this one and back, as in docs/install.md."""

import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from programs import ROOT, lacking, run
from site_support import SHOP, WAIT, Site, hot, pods_that, until, without_a_writer

COMPONENTS = ("order", "guardrail", "janitor", "kubectl")
ORDER = "dynsched.io/order"


@pytest.fixture(scope="module")
def versions(
    former: tuple[Site, str], site: Site, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Path]]:
    """The folder of each version; the previous one is installed."""
    if not site.has_mutating_policies():
        lacking("the order by policies needs Kubernetes 1.36")
    before, revision = former
    top, rules = tmp_path_factory.mktemp("versions"), hot(site.node(0))
    packed = top / "manifests.tar"
    run("git", "archive", f"--output={packed}", revision, "manifests", cwd=ROOT, check=True)
    with tarfile.open(packed) as archive:
        archive.extractall(top, filter="data")
    # Next to the other overlays: 0.2.0's example refers to the base there and has no copy of it.
    folder = top / "manifests/overlays/old"
    old = before.example(folder, COMPONENTS, rules, top / "manifests")
    new = site.example(top / "new", COMPONENTS, rules)
    # Deleting with the new manifests also removes the objects that only the new version has.
    with site.installed("-k", old, removed_by=new):
        until("the first mark", lambda: site.marked() == {site.node(0)})
        until("the order is there", lambda: orders(site))
        yield {"this": new, "the one before": old}


def orders(site: Site) -> list[str]:
    """The end of each NodeOrder."""
    return [each["spec"]["until"] for each in site.get("nodeorders", "-n", "dynsched")]


@contextmanager
def pods_are_created(site: Site) -> Iterator[None]:
    """Meanwhile create pods in dry runs; none may be refused, whatever the versions in force."""
    end, refused = threading.Event(), []
    pod = {"apiVersion": "v1", "kind": "Pod", **bare_pod(site)}
    flags = ("-n", SHOP, "create", "--dry-run=server", "-f", "-", "-o", "json")

    def create() -> None:
        while not end.is_set():
            done = run("kubectl", f"--kubeconfig={site.kubeconfig}", *flags, stdin=json.dumps(pod))
            if done.returncode:
                refused.append(done.stderr)

    thread = threading.Thread(target=create)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
    assert refused == []


def bare_pod(site: Site, name: str = "probe", **spec: object) -> dict[str, object]:
    template = pods_that(site, WAIT, name, resources={"requests": {"cpu": "10m"}}, **spec)
    template["metadata"]["name"] = name
    return template


@pytest.mark.parametrize("version", ["this", "the one before"])
def test_marks_and_order_stay_when_another_version_takes_over(version, versions, shop, site: Site):
    """The parameters run in sequence: first the upgrade, then the way back."""
    with pods_are_created(site):
        gap = without_a_writer(site, lambda: site.kubectl("apply", "-k", versions[version]))
    assert gap < 60
    (until_then,) = orders(site)
    until("the order is renewed", lambda: orders(site) > [until_then])
    name = version.replace(" ", "-")
    gated = bare_pod(site, name, schedulingGates=[{"name": "example.com/wait"}])
    site.apply({"apiVersion": "v1", "kind": "Pod", **gated})
    remove = '[{"op": "remove", "path": "/spec/schedulingGates"}]'
    site.kubectl("-n", SHOP, "patch", "pod", name, "--type=json", "-p", remove)
    site.kubectl("-n", SHOP, "wait", "--for=condition=Ready", f"pod/{name}", "--timeout=120s")
    (pod,) = site.get("pods", "-n", SHOP, "-l", f"app={name}")
    assert ORDER in pod["metadata"]["annotations"]
    assert pod["spec"]["nodeName"] != site.node(0)
    if version == "this":
        assert not site.warnings()
