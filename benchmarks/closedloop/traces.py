"""CPU use of pods from recorded series, in a folder that the user provides.

Two formats are supported. PlanetLab (github.com/beloglazov/planetlab-workload-traces): a file has
one number per line, the percentage for every five minutes of a day. Bitbrains (GWA-T-12): a file
has columns separated by semicolons, with the percentage in ``CPU usage [%]``. Nothing is
downloaded.
"""

from __future__ import annotations

import csv
import functools
from pathlib import Path
from statistics import fmean

STEP = 300.0
"""Seconds between two values of a series."""
DAY = 86400.0
COLUMN = "CPU usage [%]"

Series = tuple[float, ...]
Course = tuple[tuple[float, float], ...]
"""(age in seconds, use from then on) for one pod, starting at age 0."""


@functools.cache
def read(folder: Path) -> tuple[Series, ...]:
    """All series in the folder and its subfolders, divided by the mean of their means."""
    found = [_values(path) for path in sorted(folder.rglob("*")) if path.is_file()]
    level = fmean(map(fmean, found)) if found else 0.0
    if not level:
        raise ValueError(f"{folder} has no series; unpack a PlanetLab or Bitbrains trace there")
    return tuple(tuple(value / level for value in series) for series in found)


def course(series: Series, begin: float, lives: float, use: float) -> Course:
    """The use of a pod that starts ``begin`` seconds into the series, which wraps around.

    ``use``: the pod's use where the series is 1.
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
