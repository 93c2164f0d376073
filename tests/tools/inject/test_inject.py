"""`dynsched inject` without a cluster, and the files that are made with it."""

import json

from click.testing import CliRunner
from manifest_support import COMPONENTS
from programs import ROOT

from dynsched.cli.commands import cli
from dynsched.rules.labels import parse_label
from dynsched.tools.inject.policy import differences, policy_objects, policy_text

SHIPPED = parse_label("status=presure")


def invoke(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(cli, ["inject", *arguments])
    return done.exit_code, done.stdout, done.stderr


def test_the_component_is_what_the_command_prints_for_the_shipped_rules() -> None:
    code, out, _ = invoke("-o", "yaml", "-r", str(ROOT / "rules.yaml"))
    assert (code, out) == (0, (COMPONENTS / "inject/policy.yaml").read_text())
    code, out, _ = invoke("-o", "json", "-r", str(ROOT / "rules.yaml"))
    assert (code, json.loads(out)["items"]) == (0, policy_objects(SHIPPED))


def test_every_place_follows_the_label_and_the_weight() -> None:
    text = policy_text(parse_label("example.com/heat=high"), 7)
    assert "status" not in text
    assert "presure" not in text.replace("avoid-pressure", "")
    assert text.count("'example.com/heat'") == 2
    assert "dyn(7)" in text


def test_without_a_label_there_is_nothing_to_inject() -> None:
    for file, told in {
        "docs/examples/taint-only.yaml": "nodes are marked by no label (taint dynsched.io/",
        "manifests/overlays/order-only/rules.yaml": "nodes are marked by no label (no mark)",
    }.items():
        code, _, err = invoke("-r", str(ROOT / file))
        assert code == 1
        assert err.startswith(f"Error: {told}")


def test_wrong_usage_is_told() -> None:
    for flags in ("--weight 0", "--weight 101", "--check -o yaml", "-o table"):
        code, _, err = invoke(*flags.split(), "-r", str(ROOT / "rules.yaml"))
        assert (code, bool(err)) == (2, True), flags


def test_a_policy_that_differs_in_a_part_or_has_no_binding_is_told() -> None:
    policy, binding = policy_objects(SHIPPED)
    assert differences(SHIPPED, policy, binding) == []
    assert differences(SHIPPED, policy, None) == [
        "the policy dynsched-avoid-pressure has no binding, so it applies to nothing"
    ]
    for part in ("matchConditions", "variables", "mutations"):
        changed = policy | {"spec": policy["spec"] | {part: []}}
        (told,) = differences(SHIPPED, changed, binding)
        assert f"differs from the one for status=presure in {part}" in told
