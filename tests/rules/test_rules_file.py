"""The rules file, which is checked for changes again and again."""

import os
from pathlib import Path

import pytest

from dynsched.rules.file import RulesFile, RulesFileError


def text(threshold: int) -> str:
    return f"rules: [{{name: load, expr: load, threshold: {threshold}}}]\n"


@pytest.fixture
def path(tmp_path) -> Path:
    file = tmp_path / "rules.yaml"
    file.write_text(text(80))
    return file


def threshold(file: RulesFile) -> float:
    return file.rule_set.rules[0].threshold


def edit(path: Path) -> None:
    path.write_text(text(90))


def changed(file: RulesFile) -> bool:
    """Read the file again and accept new rules; return whether there were any."""
    found = file.read()
    if found is not None:
        file.accept()
        assert file.rule_set is found
    return found is not None


def rename(path: Path) -> None:
    """Replace the file with another one of the same size and modification time."""
    new = path.with_name("new")
    new.write_text(text(90))
    os.utime(new, ns=(0, path.stat().st_mtime_ns))
    new.replace(path)


def swap(path: Path) -> None:
    """Replace the file as the kubelet does with a ConfigMap."""
    (path.parent / "v2").mkdir()
    edit(path.parent / "v2" / "rules.yaml")
    (path.parent / "..next").symlink_to("v2")
    (path.parent / "..next").rename(path.parent / "..data")


@pytest.mark.parametrize("replace", [edit, rename, swap])
def test_a_change_is_noticed_however_it_is_made(path, replace) -> None:
    if replace is swap:
        (path.parent / "v1").mkdir()
        path.rename(path.parent / "v1" / "rules.yaml")
        (path.parent / "..data").symlink_to("v1")
        path.symlink_to("..data/rules.yaml")
    file = RulesFile(path)
    assert threshold(file) == 80
    replace(path)
    assert changed(file)
    assert threshold(file) == 90
    assert not changed(file)


def test_a_file_with_the_same_rules_is_not_changed(path) -> None:
    file = RulesFile(path)
    path.touch()
    path.write_text(text(80) + "# a remark\n")
    assert not changed(file)
    assert file.error is None


def test_rules_with_a_query_that_fails_are_refused_until_the_file_changes(path) -> None:
    file = RulesFile(path)
    path.write_text(text(90))
    for content in (text(90), text(95), text(90)):
        path.write_text(content)
        found = file.read()
        assert found is not None
        file.refuse({found.rules[0].name: "400: parse error"})
        path.rename(path.with_name("away"))
        assert file.read() is None
        assert "No such file" in str(file.error)
        path.with_name("away").rename(path)
        assert file.read() is None  # the same rules are not tried again
        assert str(file.error).startswith(f"{path}:1:")
        assert str(file.error).endswith("400: parse error")
        assert threshold(file) == 80
    path.write_text(text(95))
    assert changed(file)
    path.write_text(text(90))
    assert changed(file)
    assert (file.error, threshold(file)) == (None, 90)


BAD = {
    "is empty": lambda path: path.write_text("rules: []"),
    "not YAML": lambda path: path.write_text("rules: ["),
    "No such file": lambda _: None,
    "a pipe": os.mkfifo,
    "or a device": lambda path: path.symlink_to("/dev/zero"),
    "Is a directory": Path.mkdir,
    "longer than 256 KiB": lambda path: path.write_bytes(b"#" * 2**18 + b"\n"),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_file_is_refused_until_it_is_corrected(path, bad) -> None:
    file = RulesFile(path)
    path.unlink()
    BAD[bad](path)
    for _ in range(2):
        assert not changed(file)
        assert f"{path}:" in str(file.error)
        assert bad in str(file.error)
        assert threshold(file) == 80
    with pytest.raises(RulesFileError, match=bad):
        RulesFile(path)  # as at the start of dynsched
    if path.is_dir():
        path.rmdir()
    path.unlink(missing_ok=True)
    path.write_text(text(80))
    assert changed(file)  # reported although the rules are the old ones: the error is over
    assert file.error is None
    assert not changed(file)
