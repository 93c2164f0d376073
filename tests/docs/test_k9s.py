"""docs/examples/k9s: the columns show dynsched's mark, and the plugin queries the node."""

import json
import re
import shlex

import click
import yaml
from programs import ROOT, need, run
from scenes import example

from dynsched.cli.commands import cli
from dynsched.cli.single_pass import pass_report

EXAMPLES = ROOT / "docs/examples/k9s"
COLUMN = re.compile(r"^([\w\s%/-]+):?([\w\W]*?)\|?([NTWSLRH]{0,3})$")
"""A column of k9s: title, expression, and display flags."""


def columns_of(node: dict) -> dict[str, str]:
    """The custom columns as evaluated by jq, which k9s uses for two or more pipes."""
    views = yaml.safe_load((EXAMPLES / "views.yaml").read_text())["views"]
    found = [COLUMN.fullmatch(each).groups() for each in views["v1/nodes"]["columns"]]
    assert not any(set("{}") & set(expression) for _, expression, _ in found)
    return {
        title: run(need("jq", "jq"), "-nr", f"{json.dumps(node)} | {expression}").stdout.strip()
        for title, expression, _ in found
        if expression
    }


def test_the_columns_show_the_mark_and_its_reason() -> None:
    patch = json.loads(pass_report(example(dry_run=True)))["patches"][0]
    assert columns_of(patch["body"]) == {"MARK": "presure", "REASON": "node-cpu 91.25"}
    assert columns_of({"metadata": {"labels": {}}}) == {"MARK": "null", "REASON": ""}


def test_the_plugin_runs_why_for_the_node_in_the_context() -> None:
    (plugin,) = yaml.safe_load((EXAMPLES / "plugins.yaml").read_text())["plugins"].values()
    shell, script = plugin["args"]
    assert (plugin["command"], shell, plugin["scopes"]) == ("bash", "-c", ["nodes"])
    kubectl, ours, command, *rest = shlex.split(script.split("2>&1 | less")[0])
    assert (kubectl, ours) == ("kubectl", "dynsched")
    found = cli.get_command(click.Context(cli), command)
    given = found.make_context(command, rest).params
    assert (given["node"], given["context"]) == ("$NAME", "$CONTEXT")
