"""`dynsched demo`."""

from __future__ import annotations

import asyncio
import sys

import click


@click.command()
@click.option(
    "--nodes",
    type=click.IntRange(3, 5_000),
    default=12,
    show_default=True,
    help="Number of nodes in each cluster.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    help="Stop this many seconds after the start. Default: at Ctrl-C.",
)
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="Seed of the simulated pods.",
)
def demo(*, nodes: int, seconds: float | None, seed: int) -> None:
    """Simulate two clusters with the same pods on this machine, one of them with dynsched's order.

    Prometheus is simulated too. A page shows both clusters side by side.

    \b
    Example:
      dynsched demo --nodes 12 --seconds 60
    """
    from rich.console import Console

    try:
        from dynsched_sim.demo.run import run_demo
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("dynsched_sim"):
            raise
        raise click.ClickException(
            "the simulated cluster is not in the image: run `make demo` in a checkout of the "
            "sources, or `pip install .` there and then `dynsched demo`"
        ) from None

    sys.exit(asyncio.run(run_demo(nodes=nodes, seconds=seconds, seed=seed, console=Console())))
