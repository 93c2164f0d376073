"""Writes docs/cli.md from the commands' own help: ``python -m tools.cli_docs docs/cli.md``."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import click

from dynsched.cli.commands import cli

_HEAD: Final = """\
# Command line reference

Made by `make docs` from the commands' `--help`; do not edit. Flags of several commands stand once, under
[Shared flags](#shared-flags). A flag with an `env var` is also read from the environment. Exit codes: 0 done, 1 failed (one
line says why), 2 wrong usage (`doctor`: also a server that does not answer).

The command line of dynamicScheduler works too: `dynsched -kubeconfig FILE -prom URL -r rule.yaml -s 10 -webaddr :9000` is
`dynsched run` with today's flags.
"""
_WIDTH: Final = 120
_SHARED_BY: Final = 3
"""So many commands must have a flag, with the same meaning and default, for it to be shared."""

_Flag = tuple[str, str]
"""What stands for it in the help: names and value, and the text."""


class _Section(NamedTuple):
    """A command, and its flags."""

    command: click.Command
    context: click.Context
    flags: list[_Flag]


def render() -> str:
    """The whole page."""
    sections = list(_sections(cli, click.Context(cli, info_name="dynsched")))
    counted = Counter(flag for section in sections for flag in section.flags)
    shared = [flag for flag, number in counted.items() if number >= _SHARED_BY]
    pages = [_page(section, shared) for section in sections]
    formatter = _formatter()
    formatter.write_dl(shared)
    return _HEAD + "".join(pages) + _block("Shared flags", formatter.getvalue())


def _sections(command: click.Command, context: click.Context) -> Iterator[_Section]:
    options = (each for each in command.params if isinstance(each, click.Option))
    records = (each.get_help_record(context) for each in options)
    yield _Section(command, context, [record for record in records if record])
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None and not inner.hidden:
                yield from _sections(inner, click.Context(inner, context, info_name=name))


def _page(section: _Section, shared: list[_Flag]) -> str:
    command, context, flags = section
    formatter = _formatter()
    if any(isinstance(each, click.Argument) for each in command.params):
        command.format_usage(context, formatter)
    command.format_help_text(context, formatter)
    if own := [flag for flag in flags if flag not in shared]:
        with formatter.section("Options"):
            formatter.write_dl(own)
    if names := dict.fromkeys(_name(flag) for flag in flags if flag in shared):
        formatter.write_paragraph()
        formatter.write_text(f"Shared flags: {' '.join(names)}")
    if isinstance(command, click.Group):
        command.format_commands(context, formatter)
    return _block(context.command_path, formatter.getvalue())


def _name(flag: _Flag) -> str:
    """Its long name; one for all that say how Prometheus is asked."""
    name = next(word for word in flag[0].split() if word.startswith("--"))
    return "--prom-..." if name.startswith("--prom-") else name


def _formatter() -> click.HelpFormatter:
    return click.HelpFormatter(width=_WIDTH, max_width=_WIDTH)


def _block(title: str, text: str) -> str:
    lines = "\n".join(line.rstrip() for line in text.strip("\n").splitlines())
    return f"\n## {title}\n\n```text\n{lines}\n```\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render(), encoding="utf-8")
