"""What was told of a trouble is not told again until all is well."""

from dynsched.util.logs import MAX_KINDS, LoggedKinds


def test_a_kind_of_trouble_is_new_once_however_its_numbers_change() -> None:
    told = LoggedKinds()
    assert told.is_new("server", "no answer within 10 s")
    assert not told.is_new("server", "no answer within 11 s")
    assert told.is_new("server", "connection refused")
    assert not told.is_new("server", "no answer within 12 s")  # two kinds take turns


def test_each_key_has_troubles_of_its_own() -> None:
    told = LoggedKinds()
    assert told.is_new("a", "connection refused")
    assert told.is_new("b", "connection refused")
    assert told.forget("a")
    assert not told.is_new("b", "connection refused")
    assert told.is_new("a", "connection refused")


def test_of_what_was_never_in_trouble_nothing_was_told() -> None:
    assert not LoggedKinds().forget("a")


def test_so_many_kinds_are_told_and_no_more_until_all_is_well() -> None:
    told = LoggedKinds()
    kinds = ["trouble " + "x" * number for number in range(2 * MAX_KINDS)]
    assert sum(told.is_new("a", kind) for kind in kinds) == MAX_KINDS
    told.forget("a")
    assert told.is_new("a", kinds[-1])
