"""`kubectl dynsched`: the commands for a person, as a plugin of kubectl, and their completion.

kubectl runs `kubectl-dynsched` for `kubectl dynsched`, and `kubectl_complete-dynsched` when TAB is
pressed after it; both are found on PATH.
"""

from __future__ import annotations

import copy
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import Final

import click
from click.shell_completion import CompletionItem, ShellComplete

from dynsched import __version__
from dynsched.cli.ask import KUBECTL
from dynsched.cli.commands import Commands, cli

NAME: Final = "kubectl dynsched"
COMMANDS: Final = ("backtest", "doctor", "nodes", "open", "order", "plan", "reach", "why")

_CALL: Final = re.compile(rf"(?<![\w/.-])dynsched (?=(?:{'|'.join(COMMANDS)})\b)")
"""A call of one of the commands, in a help text."""

_DIRECTIVES: Final = {"plain": 4, "file": 0, "dir": 16}
"""What cobra, of which kubectl is made, calls ShellCompDirective, by click's types of items."""


class _Plugin(Commands):
    """The commands of `dynsched` that belong to kubectl, under its name."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's interface
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = cli.get_command(ctx, cmd_name) if cmd_name in COMMANDS else None
        if found is None:
            return None
        command = copy.copy(found)
        command.help = _CALL.sub(f"{NAME} ", found.help or "")
        # The first paragraph whole: click cuts it to 45 characters, too few to choose by.
        command.short_help = " ".join(command.help.partition("\n\n")[0].split())
        return command


@click.group(cls=_Plugin, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name=NAME)
def plugin() -> None:
    """Look at a running dynsched, and at what it would do, with kubectl's configuration.

    Where no --server is given, dynsched's Service is looked for in the cluster, and asked through
    the API server: no port-forward is needed.

    \b
    Example:
      kubectl dynsched nodes
      kubectl dynsched why worker-3 --context production
    """


def main(arguments: Sequence[str] | None = None) -> None:
    words = list(sys.argv[1:] if arguments is None else arguments)
    plugin(args=words, prog_name=NAME, obj=KUBECTL)


def complete() -> None:
    """The console script `kubectl_complete-dynsched`. The last word is to be completed."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends it without a traceback
    for line in completions(sys.argv[1:] or [""]):
        click.echo(line)


def completions(words: Sequence[str]) -> Iterator[str]:
    """What kubectl reads: a completion a line, with its help after a tab, and a directive for the
    shell (``:4``: there is nothing else to offer, ``:0``: files) in the last line.
    """
    *before, incomplete = words
    completer = ShellComplete(plugin, {"obj": KUBECTL}, NAME, "")
    items = completer.get_completions(before, incomplete)
    kind = next((item.type for item in items if item.type != "plain"), "plain")
    if kind == "plain":
        yield from map(_line, items)
    yield f":{_DIRECTIVES[kind]}"


def _line(item: CompletionItem) -> str:
    help_text = " ".join((item.help or "").split()).partition(". ")[0].removesuffix(".")
    return f"{item.value}\t{help_text}" if help_text else str(item.value)
