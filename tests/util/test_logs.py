"""Log lines: their format, and how often they are repeated."""

import json
import logging
import os
import sys
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from dynsched.util.logs import (
    MAX_KINDS,
    MAX_WAITING,
    LoggedKinds,
    configure_logging,
    last_words,
    logging_aside,
    quiet_logger,
    trouble_kind,
)

logger = logging.getLogger("dynsched.test")


@pytest.fixture(autouse=True)
def _restored_logging() -> Iterator[None]:
    logging.captureWarnings(capture=False)  # tests of other modules may have left it on
    handlers = logging.getLogger().handlers
    yield
    logging.getLogger().handlers = handlers
    logging.captureWarnings(capture=False)


def test_a_json_line_has_a_time_in_utc_and_the_extra_fields(capsys) -> None:
    configure_logging("json", "info")
    before = datetime.now(UTC)
    with logging_aside():
        logger.info("mark node %s", "n1", extra={"node": "n1", "rule": ["cpu"]})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("warnings.filters", [])
            warnings.warn("old", UserWarning, stacklevel=1)
    line, warning = map(json.loads, capsys.readouterr().err.splitlines())
    at = line.pop("time")
    logged = {"level": "INFO", "logger": "dynsched.test", "message": "mark node n1"}
    assert line == logged | {"node": "n1", "rule": ["cpu"]}
    assert at.endswith("Z")
    assert abs((datetime.fromisoformat(at) - before).total_seconds()) < 60
    assert warning["logger"] == "py.warnings"


def test_a_text_line_is_for_people_and_has_its_time_in_utc(capsys) -> None:
    configure_logging("text", "info")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "Asia/Shanghai")
        time.tzset()
        logger.info("mark node %s", "n1", extra={"node": "n1"})
    time.tzset()
    (line,) = capsys.readouterr().err.splitlines()
    at, rest = line.split(maxsplit=1)
    assert rest == "INFO    mark node n1"
    assert at.endswith("Z")
    assert abs((datetime.fromisoformat(at) - datetime.now(UTC)).total_seconds()) < 60


def test_a_reader_that_does_not_read_blocks_no_logger_and_gets_the_first_lines_later(
    monkeypatch,
) -> None:
    reading, writing = os.pipe()
    lines = [f"line {number}" for number in range(2 * MAX_WAITING)]
    with os.fdopen(reading, encoding="utf-8") as reader, ThreadPoolExecutor() as executor:
        with os.fdopen(writing, "w", encoding="utf-8") as stream:
            monkeypatch.setattr(sys, "stderr", stream)
            configure_logging("text", "info")
            with logging_aside():
                for line in lines:
                    logger.info(line)
                written = executor.submit(reader.read)
        kept = [line.partition("INFO    ")[2] for line in written.result().splitlines()]
    assert kept[:MAX_WAITING] == lines[:MAX_WAITING]
    assert len(kept) < len(lines)


def test_an_unexpected_exception_at_the_end_is_logged_after_all_lines(capsys) -> None:
    configure_logging("json", "info")

    def fail() -> None:
        logger.info("line")
        raise ZeroDivisionError("a defect")

    with pytest.raises(SystemExit), last_words((KeyError,)), logging_aside():
        fail()
    first, last = map(json.loads, capsys.readouterr().err.splitlines())
    assert (first["message"], last["message"], last["level"]) == ("line", "a defect", "CRITICAL")
    assert "ZeroDivisionError" in last["exc_info"]


def test_lines_that_callers_cause_are_logged_once_a_minute_per_kind(caplog) -> None:
    quiet = quiet_logger("dynsched.test.quiet")
    for number in range(10):
        quiet.warning("caller %d", number)
        quiet.warning("another caller %d", number)
    assert [record.getMessage() for record in caplog.records] == ["caller 0", "another caller 0"]


def test_a_kind_of_trouble_is_new_only_once_whatever_its_numbers() -> None:
    logged = LoggedKinds()
    assert logged.is_new("server", "no answer within 10 s")
    assert not logged.is_new("server", "no answer within 11 s")
    assert logged.is_new("server", "connection refused")
    assert not logged.is_new("server", "no answer within 12 s")  # two kinds alternate
    assert logged.is_new("another server", "connection refused")
    assert logged.forget("server")
    assert not logged.forget("server")
    assert logged.is_new("server", "connection refused")
    assert not logged.is_new("another server", "connection refused")


@pytest.mark.parametrize(
    ("same", "one", "other"),
    [
        (True, "'10.0.0.7:9100': no node has this name", "'abc': no node has this name"),
        (True, 'HTTP 500: "request id xyz"; look at it', 'HTTP 500: "request id abc"; look at it'),
        (True, "no node 'a' has 10.0.0.7: n1", "no node 'a', 'b', 'c' has fd00::7: n2, n3"),
        (False, "HTTP 500 Internal Server Error", "HTTP 503 Service Unavailable"),
        (False, "they differ in cluster", "they differ in cluster, job"),
        (False, "Prometheus's answer isn't JSON", "Prometheus's answer isn't there"),
    ],
)
def test_texts_that_differ_only_in_numbers_and_names_are_of_one_kind(
    same: bool, one: str, other: str
) -> None:
    assert (trouble_kind(one) == trouble_kind(other)) is same


def test_the_number_of_logged_kinds_is_limited_until_the_trouble_is_over() -> None:
    logged = LoggedKinds()
    kinds = ["trouble " + "x" * number for number in range(2 * MAX_KINDS)]
    assert sum(logged.is_new("a", kind) for kind in kinds) == MAX_KINDS
    logged.forget("a")
    assert logged.is_new("a", kinds[-1])
