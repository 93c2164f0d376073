"""The command line: settings from flags and environment, output, and exit codes."""

import json
import os
import sys
from operator import attrgetter
from pathlib import Path

import click
import pytest
from programs import ROOT, run

from dynsched.cli import commands
from dynsched.controller.settings import Settings, settings_of
from dynsched.web.certificates import TlsConfig
from tools.cli_docs import render


def started_with(line: str) -> Settings:
    """The Settings of `run` with these flags."""
    name, *words = commands.with_command(line.split())
    run_command = commands.cli.get_command(click.Context(commands.cli), name)
    assert run_command is not None
    given = run_command.make_context(name, words).params
    others = ("log_format", "log_level")
    return settings_of({flag: value for flag, value in given.items() if flag not in others})


TLS = "--tls-cert /c --tls-key /k"
OF_WEB = TlsConfig(Path("/c"), Path("/k"), Path("/a"))
FIRST_PROJECT = {"kubeconfig": Path("/k"), "prometheus.url": "http://p:9090", "interval": 5.0}
FIRST_PROJECT |= {"rules": Path("rule.yaml"), "webaddr": ":1"}
# The variable's name without DYNSCHED_, its value, the setting, and the setting's value.
ENVIRONMENT = [
    ("KUBECONFIG", "/k", "kubeconfig", Path("/k")),
    ("CONTEXT", "staging", "context", "staging"),
    ("PROM", "http://p", "prometheus.url", "http://p"),
    ("PROM_TIMEOUT", "3", "prometheus.timeout", 3.0),
    ("PROM_BEARER_TOKEN_FILE", "/t", "prometheus.bearer_token_file", "/t"),
    ("PROM_CA_FILE", "/ca", "prometheus.ca_file", "/ca"),
    ("PROM_CERT_FILE", "/c", "prometheus.cert_file", "/c"),
    ("PROM_KEY_FILE", "/key", "prometheus.key_file", "/key"),
    ("PROM_HEADER", "X-Scope-OrgID: team a\nB: c", "prometheus.headers",
     {"X-Scope-OrgID": "team a", "B": "c"}),
    ("PROM_EXTERNAL_URL", "https://example.com/prometheus/", "prometheus.external_url",
     "https://example.com/prometheus"),
    ("CLUSTER_NAME", "prod", "cluster_name", "prod"),
    ("RULES", "/r", "rules", Path("/r")),
    ("INTERVAL", "7", "interval", 7.0),
    ("WEBADDR", "127.0.0.1:1", "webaddr", "127.0.0.1:1"),
    ("DRY_RUN", "true", "dry_run", True),
    ("WEB_AUTH", "true", "web_auth", True),
    ("WEB_AUTH_AUDIENCE", "dynsched other", "web_auth_audience", ("dynsched", "other")),
]  # fmt: skip
SETTINGS = [
    ("run",
     {"prometheus.url": "http://localhost:9090", "prometheus.external_url": None,
      "rules": Path("rules.yaml"), "kubeconfig": None, "interval": 10.0, "webaddr": ":9000",
      "dry_run": False, "web_auth": False}),
    *((f"run --interval {text}", {"interval": seconds})
      for text, seconds in (("7", 7.0), ("0.5", 0.5), ("10s", 10.0), ("1m", 60.0))),
    *((line, FIRST_PROJECT) for line in (
        "-kubeconfig /k -prom http://p:9090 -r rule.yaml -s 5 -webaddr :1",
        "-kubeconfig=/k -prom=http://p:9090 -r=rule.yaml -s=5 -webaddr=:1",
        "--kubeconfig /k --prom=http://p:9090 -r rule.yaml --s=5 --webaddr :1",
        "run -kubeconfig /k -prom http://p:9090 -r rule.yaml -s 5 -webaddr :1")),
    (("run --prom http://p --prom-header A:b --prom-header C:d --prom-username me "
     "--prom-password secret"),
     {"prometheus.headers": {"A": "b", "C": "d"}, "prometheus.username": "me",
      "prometheus.password": "secret"}),
    (f"run {TLS} --tls-client-ca /a", {"tls": OF_WEB}),
    (f"run {TLS} --extender-addr :9001 --tls-client-ca /a", {"extender_tls": OF_WEB}),
    (f"run {TLS} --extender-addr :9001 --extender-client-ca /a",
     {"extender_tls": OF_WEB, "tls": TlsConfig(Path("/c"), Path("/k"))}),
    ("run --extender-addr :9001", {"extender_tls": None}),
    # Pods are bound only for callers that have a certificate or are local.
    *((f"run --bind {safe}", {"bind": True}) for safe in (
        "--webaddr 127.0.0.1:9000", "--webaddr [::1]:9000", f"{TLS} --tls-client-ca /ca",
        "--extender-addr 127.0.0.1:9001",
        f"--extender-addr :9001 --extender-client-ca /ca {TLS}")),
]  # fmt: skip


@pytest.mark.parametrize(("line", "expected"), SETTINGS)
def test_flags_become_settings(line, expected) -> None:
    settings = started_with(line)
    assert {name: attrgetter(name)(settings) for name in expected} == expected
    assert "secret" not in repr(settings)


def test_every_flag_of_run_is_read_from_the_environment(monkeypatch) -> None:
    for name, text, _, _ in ENVIRONMENT:
        monkeypatch.setenv(f"DYNSCHED_{name}", text)
    settings = started_with("run")
    for name, _, setting, expected in ENVIRONMENT:
        assert attrgetter(setting)(settings) == expected, name


NOT_BOUND = "lets every client that can connect to {} bind any pod to any node"
WRONG_USAGE = {
    "run --prom localhost:9090": "write a URL like http://prometheus:9090/prefix",
    "run --prom-bearer-token-file /t": "not sent to a default address: name its URL with --prom",
    "plan --prom-username me --prom-password s3cret": "not sent to a default address",
    "doctor --prom-bearer-token s3cret": "not sent to a default address",
    "backtest --prom-header X-Token:s3cret": "not sent to a default address",
    "run --webaddr nowhere": "'nowhere' is not an address to listen on",
    "run --interval 0": "it must be 100ms or longer",
    "run --interval soon": "'soon' is not a duration; write it like 30s",
    "run --prom-header s3cret": "write it as 'NAME: VALUE'",
    "run --tls-cert /c": "--tls-cert and --tls-key go together",
    "run --tls-client-ca /c": "--tls-client-ca needs both",
    "run --bind": NOT_BOUND.format(":9000"),
    "run --bind --webaddr 10.0.0.7:9000": "give --tls-client-ca",
    f"run --bind {TLS}": "or a loopback --webaddr",
    "run --bind --extender-addr :9001 --webaddr 127.0.0.1:9000": NOT_BOUND.format(":9001"),
    "run --extender-addr nowhere": "'nowhere' is not an address to listen on",
    "run --extender-client-ca /c": "--extender-client-ca needs --extender-addr",
    "run --extender-addr :9001 --extender-client-ca /c": (
        "--extender-client-ca needs --tls-cert and --tls-key"
    ),
    "run --web-auth-audience dynsched": "--web-auth-audience needs --web-auth",
    "run --prom-external-url https://me:s3cret@prom": "prefix, without a user",
    "fly": "No such command 'fly'",
    "why": "Missing argument 'NODE'",
    "prune --take-lease --if-lease-older-than 10m": "contradict each other",
    "prune --if-lease-older-than 10": "'10' is not a duration",
}


@pytest.mark.parametrize("line", WRONG_USAGE)
def test_wrong_usage_is_exit_code_2(call, line) -> None:
    code, _, errors = call(*line.split())
    assert code == 2
    assert WRONG_USAGE[line] in errors
    assert "s3cret" not in errors


@pytest.mark.parametrize("command", ["plan", "run", "prune"])
def test_a_failure_is_one_line_and_exit_code_1_in_a_json_log_too(call, command) -> None:
    words = (*command.split(), "--kubeconfig", "/no/such", "--log-format")
    rules = () if command == "prune" else ("--rules", ROOT / "rules.yaml")
    error = "kubeconfig /no/such: no such file; check --kubeconfig"
    assert call(*words, "text", *rules) == (1, "", f"Error: {error}\n")
    code, _, errors = call(*words, "json", *rules)
    (line,) = map(json.loads, errors.splitlines())
    assert (code, line["message"], line["level"]) == (1, error, "CRITICAL")
    assert "exc_info" not in line


def test_a_missing_rules_file_is_one_line_that_names_the_argument_or_flag(call) -> None:
    gone = "/no/such/rules.yaml"
    for words, hint in (((gone,), "a rules file"), (("--rules", gone), "the file with --rules")):
        error = f"{gone}: No such file or directory; name {hint}\n"
        assert call("check", *words) == (1, "", error)


def test_check_prints_every_error_and_checks_every_file(call, tmp_path) -> None:
    bad, one = tmp_path / "bad.yaml", tmp_path / "one.yaml"
    bad.write_text("rules:\n  - name: a\n    expr: up\n    for: 5\n")
    one.write_text("rules: [{name: cpu, expr: load, threshold: 80}]")

    code, output, errors = call("check", str(bad), str(ROOT / "rules.yaml"), str(one))

    assert code == 1
    assert errors.splitlines() == [
        f"{bad}:2:5: rules[0].threshold: is missing",
        f"{bad}:4:5: rules[0].for: 5 has no unit; write it like 30s, 2m or 1h30m",
    ]
    assert "2 rules: node-cpu, node-mem-usage; label status=presure" in output
    assert f"{one}: 1 rule: cpu; label status=presure\n" in output
    assert call("check", str(one))[0] == 0
    code, output, _ = call("check", "-o", "json", str(bad))
    assert code == 1
    assert json.loads(output) == {str(bad): {"errors": errors.splitlines(), "warnings": []}}


def test_every_command_that_takes_a_kubeconfig_takes_a_context() -> None:
    options = {each.name: {option.name for option in each.params} for each in _commands()}
    takes = {name for name, found in options.items() if "kubeconfig" in found}
    assert takes == {name for name, found in options.items() if "context" in found} >= {"run"}


def _commands():
    context = click.Context(commands.cli)
    return [commands.cli.get_command(context, name) for name in commands.cli.list_commands(context)]


def test_every_command_has_help_with_an_example_and_every_option_help() -> None:
    for command in _commands():
        assert f"dynsched {command.name}" in command.help.partition("Example:")[2]
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                assert option.help, f"{command.name} {option.name}"


def test_the_reference_is_up_to_date() -> None:
    # If this fails, run: make docs
    assert (ROOT / "docs/cli.md").read_text(encoding="utf-8") == render()


def test_without_the_simulator_the_demo_says_where_to_run_it(tmp_path) -> None:
    assert "!dynsched_sim" not in (ROOT / ".dockerignore").read_text().splitlines()
    (tmp_path / "dynsched_sim").mkdir()  # an empty package that is found before the checkout's
    (tmp_path / "dynsched_sim/__init__.py").touch()
    path = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = run(sys.executable, "-m", "dynsched", "demo", cwd=tmp_path, env=path)
    (line,) = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (1, "")
    assert line.startswith("Error: the simulated cluster is not in the image: run `make demo` in")
