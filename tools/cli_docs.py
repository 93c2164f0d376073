"""Writes docs/cli.md from the commands' own help: ``python -m tools.cli_docs docs/cli.md``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from dynsched.cli.commands import cli

_HEAD = """\
# Command line reference

Made by `make docs` from the commands' own help; do not edit. Every flag with an `env var` is also
read from the environment. Exit codes: 0 done, 1 failed (one line says why), 2 wrong usage.

The command line of dynamicScheduler works too: `dynsched -kubeconfig FILE -prom URL -r rule.yaml
-s 10 -webaddr :9000` is `dynsched run` with today's flags.
"""
_WIDTH = 90


def render() -> str:
    """The whole page."""
    context = click.Context(cli, info_name="dynsched", **cli.context_settings)
    return _HEAD + "".join(_sections(cli, context))


def _sections(command: click.Command, context: click.Context) -> Iterator[str]:
    context.terminal_width = _WIDTH
    help_text = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
    yield f"\n## {context.command_path}\n\n```text\n{help_text}\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None and not inner.hidden:
                yield from _sections(inner, click.Context(inner, context, info_name=name))


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render(), encoding="utf-8")
