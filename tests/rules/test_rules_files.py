"""Whole rules files. The first lines of `tests/rules/*.bad.yaml` state the expected errors, as
`# error: LINE:COLUMN: ...`.
"""

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from properties import steady

from dynsched.core.alerts import AlertState, NodePressure, new_alert
from dynsched.core.mark_record import write_record
from dynsched.rules.file import RulesFileError, load_rules
from dynsched.rules.parse import parse_rules, read_rules
from dynsched.rules.rule_errors import MAX_ERRORS

BAD = sorted((Path(__file__).parent).glob("*.bad.yaml"))
GOOD = "rules:\n  - {name: cpu, expr: load, threshold: 80}\n"


def errors_of(path: Path) -> list[str]:
    """The errors of the file, without its name."""
    with pytest.raises(RulesFileError) as caught:
        load_rules(path)
    lines = caught.value.lines
    assert str(caught.value) == "\n".join(lines)
    assert all(line.startswith(f"{path}:") for line in lines)
    return [line.removeprefix(f"{path}:").lstrip() for line in lines]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rules.yaml"


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.name.removesuffix(".bad.yaml"))
def test_the_errors_of_a_bad_file(path: Path) -> None:
    head = path.read_bytes().decode("latin-1")
    expected = re.findall(r"^# error: (.+)$", head, re.MULTILINE)
    assert expected
    assert errors_of(path) == expected


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *(("0100", 100), ("09", 9), ("+80", 80), ("-1", -1), ("0o17", 15), ("0x1F", 31)),
        *(("8e1", 80), ("1.5E+2", 150), (".5", 0.5), ("5.", 5), ("012.5", 12.5)),
        *(("1:20", None), ("1_000", None), ("0b11", None), ("1e", None), (".", None)),
        *((".inf", None), ("-.INF", None), (".NaN", None), ("1e999", None)),
    ],
)
def test_numbers_are_those_of_yaml_1_2(text: str, number: float | None) -> None:
    found = read_rules("rules.yaml", GOOD.replace("80", text).encode())
    if number is None:
        (error,) = found.errors
        assert error.startswith("rules.yaml:2:29: rules[0].threshold: ")
    else:
        assert found.rule_set is not None
        assert found.rule_set.rules[0].threshold == number


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (GOOD.encode(), "cpu"),
        (b"\xef\xbb\xbf" + GOOD.encode(), "cpu"),  # a byte order mark
        (GOOD.replace("cpu", "处理器").encode(), "处理器"),
    ],
)
def test_a_good_file_is_read_through_the_symbolic_links_of_a_config_map(
    content: bytes, name: str, tmp_path: Path
) -> None:
    (tmp_path / "..2026").mkdir()
    (tmp_path / "..2026/rules.yaml").write_bytes(content)
    (tmp_path / "..data").symlink_to("..2026")
    (tmp_path / "rules.yaml").symlink_to("..data/rules.yaml")
    found = load_rules(tmp_path / "rules.yaml")
    assert found == parse_rules(yaml.safe_load(GOOD.replace("cpu", name)))


def test_more_than_100_rules_are_an_error(file: Path) -> None:
    rules = "".join(
        f"  - {{name: r{number}, expr: load, threshold: 80}}\n" for number in range(101)
    )
    file.write_text("rules:\n" + rules)
    assert errors_of(file) == ["1:1: rules: has more than 100 entries"]
    first = "".join(f"  r{number}: {{Promsql: load, Threshold: 80}}\n" for number in range(101))
    file.write_text("Rulename:\n" + first)
    assert errors_of(file) == ["1:1: Rulename: has more than 100 entries"]


def test_the_record_of_all_rules_fits_into_an_annotation(file: Path) -> None:
    """The API server accepts 256 KiB of annotations per object. The longest names, all of
    characters that JSON escapes, make the longest record.
    """
    names = [f"{number:02}" + '"' * 98 for number in range(100)]
    rules = [{"name": name, "expr": "load", "threshold": -1.5e-300} for name in names]
    file.write_text(yaml.safe_dump({"rules": rules}))
    rule_set = load_rules(file)
    new = (new_alert(name, "n", "", 0) for name in names)
    alerts = [replace(each, state=AlertState.FIRING, compared=-1.5e300) for each in new]
    pressure = NodePressure("n", tuple(alerts), tuple(zip(rule_set.rules, alerts, strict=True)), 1)
    assert 20_000 < len(write_record(rule_set.mark, pressure).encode()) < 100_000


def test_yaml_tags_do_not_run_code(file: Path, tmp_path: Path) -> None:
    file.write_text(f"rules: !!python/object/apply:os.mkdir [{tmp_path / 'made'}]\n")
    assert "could not determine a constructor" in errors_of(file)[0]
    assert not (tmp_path / "made").exists()


def load_or_refuse(path: Path) -> None:
    """Load a file. The calling test fails unless this gives rules or a RulesFileError."""
    lines: tuple[str, ...] = ()
    try:
        rules = load_rules(path).rules
    except RulesFileError as error:
        rules, lines = (), error.lines
    assert rules or lines
    assert all(line.startswith(f"{path}:") for line in lines)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("random") / "rules.yaml"


FRAGMENTS = st.sampled_from([
    *"{}[]:,-?!&*|>#%@'\"~=<\n ", "- ", ": ", "\n  ", "\n    ", "rules", "name", "expr", "for",
    "threshold", "Rulename", "Promsql", "Threshold", "mark", "label", "30s", "80", ".nan", "<<",
    "!!int ", "!!binary ", "!!set ", "!!omap ", "!!timestamp ", "&a ", "*a", "---\n", "1:2",
    "0x" + "f" * 4000, "9" * 400, "1:" * 300 + "0.0", '"\\ud800"', '"\\0"', "1.0e+999", "<<: *a",
    "2026-01-01", "\ufeff", "{name: a, expr: b, threshold: ", "guard: {max_marked: ",
])  # fmt: skip


@steady(250)
@given(parts=st.lists(FRAGMENTS, max_size=25))
def test_random_text_gives_rules_or_an_error(parts: list[str], scratch: Path) -> None:
    scratch.write_text("".join(parts))
    load_or_refuse(scratch)


def test_only_the_first_of_very_many_errors_are_reported() -> None:
    found = read_rules("rules.yaml", (GOOD + "".join(f"k{n}: 1\n" for n in range(1000))).encode())
    assert len(found.errors) == MAX_ERRORS
