"""Series of CPU use from a folder that the user has: what pods use in the scenarios of a trace.

Two forms are known: PlanetLab's (github.com/beloglazov/planetlab-workload-traces: a file holds one
number a line, the percentage of every five minutes of a day), and Bitbrains' (GWA-T-12: semicolons,
the percentage in the column ``CPU usage [%]``). Nothing is downloaded.
"""

from __future__ import annotations

import csv
import functools
from pathlib import Path
from statistics import fmean

STEP = 300.0
"""Seconds from one value of a series to the next."""
DAY = 86400.0
COLUMN = "CPU usage [%]"

Series = tuple[float, ...]
Course = tuple[tuple[float, float], ...]
"""(age in seconds, use from then on) of one pod, from age 0 on."""


@functools.cache
def read(folder: Path) -> tuple[Series, ...]:
    """All series of the folder and of those in it, over the mean of their means."""
    found = [_values(path) for path in sorted(folder.rglob("*")) if path.is_file()]
    level = fmean(map(fmean, found)) if found else 0.0
    if not level:
        raise ValueError(f"{folder} has no series; unpack a trace of PlanetLab or Bitbrains there")
    return tuple(tuple(value / level for value in series) for series in found)


def course(series: Series, begin: float, lives: float, use: float) -> Course:
    """What a pod uses that begins ``begin`` seconds into the series, which starts again at its end;
    ``use``: where the series is 1.
    """
    first, last = int(begin // STEP), int((begin + lives) // STEP)
    return tuple(
        (max(0.0, place * STEP - begin), use * series[place % len(series)])
        for place in range(first, last + 1)
    )


def _values(path: Path) -> Series:
    try:
        lines = path.read_text().splitlines()
        if lines and COLUMN in lines[0]:
            names, *rows = csv.reader(lines, delimiter=";", skipinitialspace=True)
            place = [name.strip() for name in names].index(COLUMN)
            found = tuple(float(row[place]) for row in rows)
        else:
            found = tuple(map(float, lines))
    except (ValueError, IndexError) as error:
        raise ValueError(f"{path} is no series of a trace: {error}") from error
    if not found:
        raise ValueError(f"{path} is no series of a trace: it is empty")
    return found
