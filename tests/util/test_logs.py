"""Log lines: their form, and that nobody waits for whoever reads them."""

import json
import logging
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dynsched.util import logs
from dynsched.util.logs import MAX_KINDS, LoggedKinds, configure_logging, last_words, logging_aside

logger = logging.getLogger("dynsched.test")


@pytest.fixture(autouse=True)
def _warnings_as_before() -> Iterator[None]:
    logging.captureWarnings(capture=False)  # tests of other modules may have left it on
    yield
    logging.captureWarnings(capture=False)


class Pipe:
    """Standard error as a pipe that is read only when it is asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._reading, writing = os.pipe()
        self.stream = os.fdopen(writing, "w")

    def configure(self, log_format: str) -> None:
        """As a process does at its start."""
        self._monkeypatch.setattr(sys, "stderr", self.stream)  # not before: pytest sets it too
        configure_logging(log_format, "info")

    def fill(self) -> None:
        """As a reader leaves it who stopped long ago."""
        descriptor = self.stream.fileno()
        os.set_blocking(descriptor, False)
        for size in (65536, 1):
            try:
                while True:
                    os.write(descriptor, b"." * size)
            except BlockingIOError:
                pass
        os.set_blocking(descriptor, True)

    def read(self) -> list[str]:
        """All lines until the writing end is closed."""
        self.stream.close()
        with os.fdopen(self._reading) as reading:
            return reading.read().lstrip(".").splitlines()

    def read_on(self) -> threading.Thread:
        """Read, as somebody who has come back."""
        self.lines: list[str] = []

        def run() -> None:
            with os.fdopen(self._reading) as reading:
                self.lines += reading.read().lstrip(".").splitlines()

        thread = threading.Thread(target=run)
        thread.start()
        return thread


@pytest.fixture
def pipe(monkeypatch) -> Pipe:
    return Pipe(monkeypatch)


def test_json_has_a_time_with_a_zone_and_fields_of_its_own(pipe) -> None:
    pipe.configure("json")
    before = datetime.now(UTC)
    logger.info("mark node %s", "n1", extra={"node": "n1", "rule": ["cpu"]})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.filters", [])
        warnings.warn("old", UserWarning, stacklevel=1)
    line, of_python = map(json.loads, pipe.read())
    at = line.pop("time")
    told = {"level": "INFO", "logger": "dynsched.test", "message": "mark node n1"}
    assert line == told | {"node": "n1", "rule": ["cpu"]}
    assert at.endswith("Z")
    assert abs((datetime.fromisoformat(at) - before).total_seconds()) < 60
    assert of_python["logger"] == "py.warnings"


def test_text_is_for_people(pipe) -> None:
    pipe.configure("text")
    logger.info("mark node %s", "n1", extra={"node": "n1"})
    (line,) = pipe.read()
    assert line.endswith(" INFO    mark node n1")


def test_aside_all_lines_are_written_in_their_order(pipe) -> None:
    pipe.configure("json")
    reader = pipe.read_on()
    with logging_aside():
        for number in range(3000):
            logger.info("line %d", number)
    pipe.stream.close()
    reader.join(30)
    messages = [json.loads(line)["message"] for line in pipe.lines]
    assert messages == [f"line {number}" for number in range(3000)]


def test_nobody_waits_for_a_reader_who_stopped(pipe, monkeypatch) -> None:
    monkeypatch.setattr(logs, "MAX_WAITING", 200)
    monkeypatch.setattr(logs, "FLUSH_SECONDS", 0.05)
    pipe.configure("json")
    pipe.fill()
    with logging_aside():
        for number in range(1000):
            logger.info("line %d", number)
        reader = pipe.read_on()
        root = logging.getLogger().handlers[0]
        monkeypatch.setattr(logs, "FLUSH_SECONDS", 30)
        assert root.written()
        logger.info("the last")
    pipe.stream.close()
    reader.join(30)
    messages = [json.loads(line)["message"] for line in pipe.lines]
    missing = " log lines are missing here: standard error was not read fast enough"
    dropped = sum(int(text.removesuffix(missing)) for text in messages if text.endswith(missing))
    kept = [text for text in messages if text.startswith("line ")]
    assert 100 < len(kept) < 1000
    assert len(kept) + dropped == 1000
    assert kept[:100] == [f"line {number}" for number in range(100)]
    assert messages[-2].endswith(missing)
    assert messages[-1] == "the last"


@pytest.mark.parametrize("words", [True, False], ids=["a line waits", "nothing waits"])
def test_the_end_waits_for_a_reader_for_a_bounded_time(pipe, monkeypatch, *, words) -> None:
    """Where nothing waits, all lines are written, and the traceback would wait."""
    monkeypatch.setattr(logs, "FLUSH_SECONDS", 0.05)
    pipe.configure("text")
    pipe.fill()
    with pytest.raises(SystemExit) as ended, logging_aside():
        fails(words=words)
    assert ended.value.code == 1
    with logging_aside():
        logger.info("waits too")


def fails(*, words: bool = True) -> None:
    if words:
        logger.info("line")
    raise ZeroDivisionError("a defect")


def test_an_error_goes_its_way_where_somebody_reads(pipe) -> None:
    pipe.configure("text")
    with pytest.raises(ZeroDivisionError), logging_aside():
        fails()
    assert len(pipe.read()) == 1


def test_the_last_words_come_out(pipe) -> None:
    pipe.configure("json")
    with pytest.raises(SystemExit), logging_aside(), last_words((KeyError,)):
        fails()
    first, last = map(json.loads, pipe.read())
    assert (first["message"], last["message"], last["level"]) == ("line", "a defect", "CRITICAL")
    assert "ZeroDivisionError" in last["exc_info"]


def test_a_reader_who_is_gone_and_a_full_disk_end_nothing(pipe, monkeypatch) -> None:
    pipe.configure("text")
    os.close(pipe._reading)
    with logging_aside():
        for number in range(100):
            logger.info("line %d", number)
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stderr", full)
        configure_logging("text", "info")
        with logging_aside():
            logger.info("line")


def test_a_log_call_with_a_defect_stops_nobody(pipe) -> None:
    pipe.configure("text")
    with logging_aside():
        logger.info("%d", "no number")
    (line,) = pipe.read()
    assert line.startswith("a log line of dynsched.test cannot be made: %d format")


def test_a_pipe_that_does_not_block_is_waited_for(pipe) -> None:
    pipe.configure("text")
    pipe.fill()
    os.set_blocking(pipe.stream.fileno(), False)
    with logging_aside():
        logger.info("line")
        reader = pipe.read_on()
    pipe.stream.close()
    reader.join(30)
    assert len(pipe.lines) == 1


def test_started_without_standard_error(monkeypatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    monkeypatch.setattr(logs, "FLUSH_SECONDS", 1e6)  # who waited for a reader would not end
    configure_logging("text", "info")
    with logging_aside():
        logger.info("to nobody")


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
