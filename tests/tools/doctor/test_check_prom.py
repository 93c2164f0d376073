"""`dynsched check --prom`: a real Prometheus parses expressions; errors have line and column."""

import json
import re

import pytest

from dynsched.rules.promql import MAX_OPERATORS

RULES = """\
rules:
  - name: plain
    expr: sum by (instance) (rate(up[2m]) + )
    threshold: 1
  - name: folded
    expr: >-
      sum by (instance)
      (rate(up[2m]))
      + sum by (
    threshold: 1
  - name: quoted
    expr: 'up + ) '
    threshold: 1
  - name: literal
    expr: |
      up
      + up[
    threshold: 1
  - name: types
    expr: up[5m] + 1
    threshold: 1
  - {name: good, expr: 'max by (instance) (up)', threshold: 1}
"""


GOOD = "rules: [{name: good, expr: max by (instance) (up), threshold: 1}]"
CONFIG_MAP = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: rules}
data:
  rules.yaml: |
    rules:
      - name: cpu
        expr: up +
        threshold: 1
"""
FIRST = "Rulename:\n  cpu:\n    Promsql: up +\n    Threshold: 1\n"


@pytest.mark.parametrize(
    ("text", "places"),
    [
        (RULES, ["3:5 1:35", "6:5 1:44", "12:5 1:7", "15:5 3:1", "20:5 1:1"]),
        (CONFIG_MAP, ["3:5 1:5"]),
        (FIRST, ["3:5 1:5"]),  # the first project's format
        (GOOD, []),
    ],
)
def test_a_syntax_error_has_its_line_and_column_in_the_rules_file_and_in_the_expression(
    call, tmp_path, history, text, places
) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(text)
    code, output, errors = call("check", file, "--prom", history.url)
    lines = errors.splitlines()
    error = r"(\d+:\d+): .*rule \w+: Prometheus refuses the expression: (\d+:\d+): parse error: "
    found = [re.search(error, line.partition("yaml:")[2]) for line in lines]
    assert [" ".join(each.groups()) for each in found if each] == places
    assert code == (1 if places else 0)
    if places:
        (report,) = json.loads(call("check", file, "--prom", history.url, "-o", "json")[1]).values()
        assert report["errors"] == lines
    else:
        assert output == f"{file}: 1 rule: good; label status=presure\n"


def test_if_no_parser_finds_the_ranges_the_advice_is_to_write_the_lag(
    call, tmp_path, history
) -> None:
    file = tmp_path / "rules.yaml"
    long = "up * 1" + " + 0" * MAX_OPERATORS
    for more, hint in ((", by: expected", True), (", by: expected, lag: 30s", False), ("", False)):
        file.write_text(f"rules: [{{name: cpu, expr: {long}, threshold: 80{more}}}]")
        for options in ((), ("--prom", history.url)):
            code, _, errors = call("check", file, *options)
            assert code == 0
            assert ("write `lag:` in the rule" in errors) == hint
            assert ("not known how late" in errors) == bool(hint and options)


def test_an_unreachable_server_is_a_one_line_error_and_no_error_of_the_rules(
    call, tmp_path
) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(GOOD)
    code, output, errors = call("check", file, "--prom", "http://127.0.0.1:1")
    assert (code, output) == (1, f"{file}: 1 rule: good; label status=presure\n")
    (line,) = errors.splitlines()
    assert line.startswith("Error: the expressions were not parsed: Prometheus at http://127.0.0.1")
