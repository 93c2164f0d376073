"""The order of the tests: every process begins with slow ones, and none is lost."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from dealing import slow_ones_first


def item(module, number, marks):
    return SimpleNamespace(
        path=Path(module), name=f"{module}:{number}", get_closest_marker=marks.get
    )


def module(name, count, **marks):
    return [item(name, number, marks) for number in range(count)]


SLOW = pytest.mark.slow.mark
ITEMS = [
    *module("a", 40),
    *module("b", 3, slow=SLOW),
    *module("c", 4, slow=SLOW),
    *module("d", 41),
    *module("e", 1, slow=SLOW, timeout=pytest.mark.timeout(900).mark),
]


def test_the_slow_ones_are_at_the_front_of_each_processs_share() -> None:
    dealt = [each.name for each in slow_ones_first(ITEMS, 2)]

    assert sorted(dealt) == sorted(each.name for each in ITEMS)
    # 89 tests: xdist sends 44 to the first process, and the others to the second.
    assert dealt[:4] == ["e:0", "b:0", "b:1", "b:2"]
    assert dealt[44:48] == ["c:0", "c:1", "c:2", "c:3"]
    quick = [name for name in dealt if name[0] in "ad"]
    assert quick == [each.name for each in ITEMS if each.name[0] in "ad"]


@pytest.mark.parametrize("processes", [1, 2, 3, 4, 7, 200])
def test_no_test_is_lost_and_none_comes_twice(processes) -> None:
    dealt = slow_ones_first(ITEMS, processes)

    assert sorted(map(id, dealt)) == sorted(map(id, ITEMS))
