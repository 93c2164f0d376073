"""The rules file, looked at again and again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dynsched import settings
from dynsched.settings import RulesFile, RulesFileError


def text(threshold: int) -> str:
    return f"rules: [{{name: load, expr: load, threshold: {threshold}}}]\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "rules.yaml"
    file.write_text(text(80))
    return file


def threshold(file: RulesFile) -> float:
    return file.rule_set.rules[0].threshold


def test_a_bad_file_is_no_start(path: Path) -> None:
    path.write_text("rules: []")
    with pytest.raises(RulesFileError, match="is empty"):
        RulesFile(path)


def test_nothing_changed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RulesFile(path)
    monkeypatch.setattr(settings, "load_rules", None)  # it is not even read
    assert not file.changed()


def test_edited_in_place(path: Path) -> None:
    file = RulesFile(path)
    path.write_text(text(90))
    assert file.changed()
    assert threshold(file) == 90
    assert not file.changed()


def test_replaced_by_a_rename_of_the_same_size_and_time(path: Path) -> None:
    file = RulesFile(path)
    new = path.with_name("new")
    new.write_text(text(90))
    os.utime(new, ns=(0, path.stat().st_mtime_ns))
    new.replace(path)
    assert file.changed()
    assert threshold(file) == 90


def test_swapped_behind_symlinks(path: Path, tmp_path: Path) -> None:
    for version in (1, 2):
        (tmp_path / f"v{version}").mkdir()
        (tmp_path / f"v{version}" / "rules.yaml").write_text(text(80 + version))
    data = tmp_path / "..data"
    data.symlink_to("v1")
    path.unlink()
    path.symlink_to("..data/rules.yaml")
    file = RulesFile(path)
    (tmp_path / "..next").symlink_to("v2")
    (tmp_path / "..next").rename(data)
    assert file.changed()
    assert threshold(file) == 82


def test_touched_is_not_changed(path: Path) -> None:
    file = RulesFile(path)
    path.touch()
    path.write_text(text(80) + "# a remark\n")
    assert not file.changed()
    assert file.error is None


@pytest.mark.parametrize("bad", ["rules: []", "rules: [", None], ids=["wrong", "no YAML", "gone"])
def test_refused_and_mended(path: Path, bad: str | None) -> None:
    file = RulesFile(path)
    if bad is None:
        path.unlink()
    else:
        path.write_text(bad)
    for _ in range(2):
        assert not file.changed()
        assert file.error is not None
        assert str(path) in file.error
        assert threshold(file) == 80
    path.write_text(text(80))
    assert file.changed()  # although it is as before: whoever mended it wants to be told
    assert file.error is None
    assert not file.changed()


def test_what_could_not_be_read_for_a_moment_is_read_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network file system, say, or a mode that is put right: the file itself does not change."""
    file = RulesFile(path)
    path.write_text(text(90))
    load = settings.load_rules

    def fails(path: Path) -> None:
        raise RulesFileError([f"{path}: Permission denied"])

    monkeypatch.setattr(settings, "load_rules", fails)
    assert not file.changed()
    assert file.error is not None
    monkeypatch.setattr(settings, "load_rules", load)
    assert file.changed()
    assert threshold(file) == 90
