"""`dynsched check` on files, standard input and ConfigMaps."""

import json
import os
from functools import partial
from pathlib import Path

import pytest
import yaml
from command_line import call_of

GOOD = "rules:\n  - {name: cpu, expr: load, threshold: 80}\n"
BAD = "# the rules\nrules:\n  - name: cpu\n    expr: load\n    for: 5\n    threshold: 80\n"
DOUBTFUL = "rules:\n  - {name: cpu, expr: load > 80, threshold: 80}\n"
ERROR = "rules[0].for: 5 has no unit; write it like 30s, 2m or 1h30m"


@pytest.fixture
def call(capsys):
    """Run `dynsched check` in this process: (exit code, stdout, stderr)."""
    return partial(call_of, capsys, "check")


@pytest.fixture
def stdin(monkeypatch):
    """Provide a text on standard input through a real pipe."""
    opened = []

    def put(text):
        reading, writing = os.pipe()
        os.write(writing, text.encode())
        os.close(writing)
        opened.append(os.fdopen(reading))
        monkeypatch.setattr("sys.stdin", opened[-1])

    yield put
    for file in opened:
        file.close()


def config_map(name="dynsched-rules", **data):
    metadata = {"name": name, "namespace": "ops"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def test_the_summary_names_the_order_and_its_rules(call, stdin) -> None:
    stdin(f"{GOOD}\norder: {{score: {{cpu: 1}}}}\n")
    assert call("-")[1].endswith("label status=presure; order by cpu\n")


def test_standard_input_is_read(call, stdin) -> None:
    stdin(GOOD)
    assert call("-") == (0, "standard input: 1 rule: cpu; label status=presure\n", "")
    stdin(BAD)
    assert call("-") == (1, "", f"standard input:5:5: {ERROR}\n")


def test_a_pipe_is_read_like_a_file(call, tmp_path) -> None:
    """`dynsched check <(kubectl ...)`."""
    reading, writing = os.pipe()
    os.write(writing, GOOD.encode())
    os.close(writing)
    name = f"/dev/fd/{reading}"
    assert call(name)[:2] == (0, f"{name}: 1 rule: cpu; label status=presure\n")
    os.close(reading)


def test_a_warning_does_not_change_the_exit_code(call, tmp_path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(DOUBTFUL)
    code, output, errors = call(file)
    assert (code, output) == (0, f"{file}: 1 rule: cpu; label status=presure\n")
    assert errors.startswith(f"{file}:2:17: warning: rules[0].expr: the comparison '> 80' leaves")
    code, output, errors = call("-o", "json", file)
    assert (code, errors) == (0, "")
    (report,) = json.loads(output).values()
    assert report["errors"] == []
    assert report["warnings"][0].startswith(f"{file}:2:17: warning: rules[0].expr: the comparison")


def test_a_warning_has_its_place_in_the_first_projects_format(call, tmp_path) -> None:
    file = tmp_path / "rule.yaml"
    file.write_text("Rulename:\n  cpu:\n    Promsql: load > 80\n    Threshold: 80\n")
    assert call(file)[2].startswith(f"{file}:3:5: warning: Rulename.cpu.Promsql: the comparison")


def test_rules_in_a_config_map_are_checked(call, tmp_path) -> None:
    file = tmp_path / "cm.yaml"
    file.write_text(f"{HEAD}data:\n  rules.yaml: |\n{indented(GOOD)}")
    name = f"{file}: ConfigMap ops/dynsched-rules, rules.yaml"
    assert call(file) == (0, f"{name}: 1 rule: cpu; label status=presure\n", "")
    file.write_text(f"{HEAD}data:\n  rules.yaml: |\n{indented(BAD)}")
    assert call(file) == (1, "", f"{name}:5:5: {ERROR}\n")


HEAD = """apiVersion: v1
kind: ConfigMap
metadata: {name: dynsched-rules, namespace: ops}
"""


def indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


def test_only_objects_with_rules_are_checked(call, stdin) -> None:
    objects = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ops"}},
        config_map("settings", DYNSCHED_PROM="http://prometheus:9090"),
        config_map("one", **{"rules.yaml": GOOD, "hot.yml": DOUBTFUL, "notes": "no: rules here"}),
        {"apiVersion": "v1", "kind": "List", "items": [config_map("two", other=BAD)]},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"x": "rules:"}},
    ]
    stdin(yaml.safe_dump_all(objects))
    code, output, _ = call("-o", "json", "-")
    assert code == 1
    assert {
        name: [len(found) for found in report.values()]
        for name, report in json.loads(output).items()
    } == {
        "standard input: ConfigMap ops/one, rules.yaml": [0, 0],
        "standard input: ConfigMap ops/one, hot.yml": [0, 1],
        "standard input: ConfigMap ops/two, other": [1, 0],
    }


NO_RULES = ": there are Kubernetes objects in it, but no ConfigMap with rules"
OPEN_QUOTE = "data:\n  rules.yaml: |\n    rules:\n      - name: 'cpu\n"


def test_a_config_map_without_rules_is_an_error(call, tmp_path) -> None:
    file = tmp_path / "cm.yaml"
    bodies = ["data: {a: b}\n", "", "data:\n", "data: []\n", "data: {rules.yaml: {a: 1}}\n"]
    not_yaml = ": ConfigMap ops/dynsched-rules, rules.yaml:3:1: not YAML: while scanning a quoted"
    for body, error in (*((body, NO_RULES) for body in bodies), (OPEN_QUOTE, not_yaml)):
        file.write_text(f"{HEAD}{body}")
        code, output, errors = call(file)
        assert (code, output) == (1, "")
        assert errors.startswith(f"{file}{error}")


def of_expression(folder: Path, expr: str) -> Path:
    rules = folder / "rules.yaml"
    rule = {"name": "cpu", "expr": expr, "threshold": 80}
    rules.write_text(yaml.safe_dump({"rules": [rule]}, sort_keys=False))
    return rules


UNPARSED = ["sum by (instance", 'load{a="b}', "# none", 'load{a~"b"}', "rate(load[5m] anchored)",
          "load default 0", "WITH (x = load{a=b}, b='c') x"]  # fmt: skip


@pytest.mark.parametrize("expr", UNPARSED)
def test_promql_that_cannot_be_parsed_here_is_a_warning(call, tmp_path, expr) -> None:
    code, _, errors = call(of_expression(tmp_path, expr))
    assert code == 0
    assert "rules.yaml:3:3: warning: rule cpu: the expression was not checked: " in errors
