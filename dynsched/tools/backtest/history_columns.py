"""From the series of one answer to columns of values, and to and from a file.

A column is what one value of the node's label had at each step. Several series of one node become
one column of the worst values, as `engine.match` takes the worst sample.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from dynsched.engine.columns import Floats, Spans
from dynsched.sources.prometheus import RangeResult
from dynsched.tools.backtest.steps import Part, Window
from dynsched.util.errors import ExpectedError

_SUCCESSION: Final = 600.0
"""Seconds for which a series may overlap with its successor, of the same node and other labels: for
five minutes Prometheus goes on giving the last value of one that has ended."""


@dataclass(frozen=True, slots=True)
class Block:
    """The values of one part of a query. ``values`` has the shape (steps, names), NaN where there
    is no finite value. ``unnamed``: series without a label that names a node.
    """

    names: tuple[str, ...]
    values: Floats
    unnamed: int = 0
    warnings: tuple[str, ...] = ()
    several: frozenset[str] = field(default_factory=frozenset)
    """Names that had several series at the same time."""


def worst(one: Floats, other: Floats, *, rises: bool) -> Floats:
    """The worse of two values each; the only one where the other is NaN."""
    return np.fmax(one, other) if rises else np.fmin(one, other)


def to_block(
    answer: RangeResult, labels: Sequence[str], window: Window, part: Part, *, rises: bool
) -> Block:
    """The columns of an answer. ``labels``: the first that a series has names its node."""
    columns: dict[str, Floats] = {}
    unnamed = 0
    several = set()
    start = window.at(part.first)
    for carried, times, found in Spans.of(answer.series).columns():
        name = next((carried[label] for label in labels if label in carried), None)
        if name is None:
            unnamed += 1
            continue
        column = _column((times - start) / window.step, found, part.count)
        other = columns.get(name)
        if other is not None:
            both = ~np.isnan(column) & ~np.isnan(other)
            if int(both.sum()) * window.step > _SUCCESSION:
                several.add(name)
            column = worst(other, column, rises=rises)
        columns[name] = column
    values = np.column_stack(list(columns.values())) if columns else np.empty((part.count, 0))
    return Block(tuple(columns), values, unnamed, answer.warnings, frozenset(several))


def _column(places: Floats, values: Floats, count: int) -> Floats:
    """``places``: the times of the values, in steps."""
    rows = np.rint(places).astype(np.int64)
    # A server may give other moments than those that were asked for.
    fits = (rows >= 0) & (rows < count) & (np.abs(places - rows) < 0.5)  # noqa: PLR2004 (half a step)
    column = np.full(count, np.nan)
    column[rows[fits]] = values[fits]
    column[~np.isfinite(column)] = np.nan
    return column


def save(path: Path, block: Block) -> None:
    """Write a block so that it is there whole, or not at all. ExpectedError: the disk is full."""
    aside = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        with aside.open("wb") as file:
            np.savez(
                file,
                names=np.array(block.names, np.str_),
                values=block.values,
                unnamed=np.array(block.unnamed),
                warnings=np.array(block.warnings, np.str_),
                several=np.array(sorted(block.several), np.str_),
            )
        aside.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            aside.unlink()
        raise ExpectedError(
            f"the history cannot be kept in {path.parent}: {error.strerror}; free some space, or "
            "name another directory with --cache"
        ) from error


def load(path: Path) -> Block:
    """What `save` wrote. ValueError, OSError or KeyError where it is something else."""
    with np.load(path, allow_pickle=False) as stored:
        return Block(
            tuple(stored["names"].tolist()),
            stored["values"],
            int(stored["unnamed"]),
            tuple(stored["warnings"].tolist()),
            frozenset(stored["several"].tolist()),
        )
