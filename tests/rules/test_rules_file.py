"""The rules file, looked at again and again."""

import os
import socket
import threading
from pathlib import Path

import pytest

from dynsched.rules import file as rules_file
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


def test_a_bad_file_is_no_start(path) -> None:
    path.write_text("rules: []")
    with pytest.raises(RulesFileError, match="is empty"):
        RulesFile(path)


def test_nothing_changed(path, monkeypatch) -> None:
    file = RulesFile(path)
    monkeypatch.setattr(rules_file, "read_rules", None)  # it is not even parsed
    assert not file.changed()


def edit(path: Path) -> None:
    path.write_text(text(90))


def rename(path: Path) -> None:
    """Another file of the same size and time."""
    new = path.with_name("new")
    new.write_text(text(90))
    os.utime(new, ns=(0, path.stat().st_mtime_ns))
    new.replace(path)


def swap(path: Path) -> None:
    """As the kubelet does with a ConfigMap."""
    (path.parent / "v2").mkdir()
    edit(path.parent / "v2" / "rules.yaml")
    (path.parent / "..next").symlink_to("v2")
    (path.parent / "..next").rename(path.parent / "..data")


@pytest.mark.parametrize("replace", [edit, rename, swap])
def test_changed_in_any_way(path, replace) -> None:
    if replace is swap:
        (path.parent / "v1").mkdir()
        path.rename(path.parent / "v1" / "rules.yaml")
        (path.parent / "..data").symlink_to("v1")
        path.symlink_to("..data/rules.yaml")
    file = RulesFile(path)
    assert threshold(file) == 80
    replace(path)
    assert file.changed()
    assert threshold(file) == 90
    assert not file.changed()


def test_touched_is_not_changed(path) -> None:
    file = RulesFile(path)
    path.touch()
    path.write_text(text(80) + "# a remark\n")
    assert not file.changed()
    assert file.error is None


@pytest.mark.parametrize("bad", ["rules: []", "rules: [", None], ids=["wrong", "no YAML", "gone"])
def test_refused_and_mended(path, bad) -> None:
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


def test_what_could_not_be_read_for_a_moment_is_read_again(path, monkeypatch) -> None:
    """A network file system, say, or a mode that is put right: the file itself does not change."""
    file = RulesFile(path)
    path.write_text(text(90))
    read = rules_file.read_file

    def fails(path: Path, most: int) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(rules_file, "read_file", fails)
    assert not file.changed()
    assert file.error == f"{path}: Permission denied; check its permissions"
    monkeypatch.setattr(rules_file, "read_file", read)
    assert file.changed()
    assert threshold(file) == 90


def test_a_refused_file_is_parsed_once(path, monkeypatch) -> None:
    """It is read at every tick, and a hostile one takes a second to be read as YAML."""
    file = RulesFile(path)
    path.write_text("rules: []")
    assert not file.changed()
    monkeypatch.setattr(rules_file, "read_rules", None)
    assert not file.changed()
    assert "is empty" in str(file.error)
    path.touch()
    assert not file.changed()


def put_fifo(path: Path) -> None:
    os.mkfifo(path)


def put_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))


KINDS = {
    "a pipe": put_fifo,
    "a socket": put_socket,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "Is a directory": Path.mkdir,
    "longer than 256 KiB": lambda path: path.write_bytes(b"#" * 2**18 + b"\n"),
    "Too many levels of symbolic links": lambda path: path.symlink_to(path.name),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file_is_refused_and_not_opened(path, kind) -> None:
    file = RulesFile(path)
    path.unlink()
    KINDS[kind](path)
    assert not file.changed()
    assert kind in str(file.error)
    assert threshold(file) == 80
    with pytest.raises(RulesFileError, match=kind):
        RulesFile(path)
    path.rmdir() if path.is_dir() else path.unlink()
    path.write_text(text(90))
    assert file.changed()
    assert threshold(file) == 90


def test_a_name_that_is_no_unicode(tmp_path) -> None:
    path = tmp_path / os.fsdecode(b"r\xfcles.yaml")
    path.write_text("rules: []")
    with pytest.raises(RulesFileError) as caught:
        RulesFile(path)
    assert f"{tmp_path}/r?les.yaml:1:1: rules: is empty" in str(caught.value)


def test_a_pipe_that_comes_between_look_and_opening_is_not_waited_for(path, monkeypatch) -> None:
    file = RulesFile(path)
    path.unlink()
    os.mkfifo(path)
    monkeypatch.setattr("dynsched.util.files.require_file", lambda *_: None)
    assert not file.changed()
    assert "a pipe" in str(file.error)


def test_a_file_system_that_hangs_holds_nobody_up(path, monkeypatch) -> None:
    file = RulesFile(path)
    monkeypatch.setattr(rules_file, "READ_SECONDS", 0.05)
    answers = threading.Event()
    read = rules_file.read_file

    def hangs(path: Path, most: int) -> bytes:
        answers.wait(30)
        return read(path, most)

    monkeypatch.setattr(rules_file, "read_file", hangs)
    path.write_text(text(90))
    for _ in range(20):
        assert not file.changed()
        assert "does the file system hang" in str(file.error)
    hanging = [each for each in threading.enumerate() if each.name == "rules file"]
    assert len(hanging) == 1  # not one a tick
    assert hanging[0].daemon
    with pytest.raises(RulesFileError, match="not read within"):
        RulesFile(path)  # a start
    answers.set()
    hanging[0].join(30)
    assert file.changed()
    assert threshold(file) == 90
    assert file.error is None


def test_what_nobody_thought_of_is_refused(path, monkeypatch) -> None:
    file = RulesFile(path)

    def defect(_data: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(rules_file, "parse_rules", defect)
    path.write_text(text(90))
    assert not file.changed()
    assert "because of a bug in dynsched: ZeroDivisionError" in str(file.error)
    assert threshold(file) == 80
