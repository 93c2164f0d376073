"""`kubectl dynsched`: the same program as a plugin of kubectl, and its completion.

kubectl runs `kubectl-dynsched` for `kubectl dynsched`, and `kubectl_complete-dynsched` when TAB is
pressed after it; both are found on PATH.
"""

from __future__ import annotations

import sys
from typing import Final

import click
from click.shell_completion import ShellComplete

from dynsched.cli.commands import cli

NAME: Final = "kubectl dynsched"
_DIRECTIVES: Final = {"plain": 4, "file": 0, "dir": 16}
"""What cobra, which kubectl is made with, calls ShellCompDirective, by click's types of items."""


def main() -> None:
    """Run a command under kubectl's name."""
    cli(prog_name=NAME)


def complete() -> None:
    """Complete the last word: a line for each completion, then the directive for the shell."""
    *before, incomplete = sys.argv[1:] or [""]
    items = ShellComplete(cli, {}, NAME, "").get_completions(before, incomplete)
    kind = next((item.type for item in items if item.type != "plain"), "plain")
    for item in items if kind == "plain" else ():
        click.echo(f"{item.value}\t{item.help}" if item.help else item.value)
    click.echo(f":{_DIRECTIVES[kind]}")
