"""What the tests of the backtest share."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from backtest_support import Call, Ended, Reported

from dynsched.cli import commands


@pytest.fixture
def call(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    """Run `dynsched backtest` in a thread: (exit code, stdout, stderr)."""

    def run(words: list[str]) -> int:
        with pytest.raises(SystemExit) as ended:
            commands.main(words)
        return int(ended.value.code or 0)

    async def called(url: str, rules: Mapping[str, Any], *more: str) -> Ended:
        path = tmp_path / "rules.yaml"
        path.write_text(json.dumps(rules))  # JSON is YAML
        words = ["backtest", "--prom", url, "-r", str(path), *more]
        code = await asyncio.to_thread(run, words)
        output = capsys.readouterr()
        return code, output.out, output.err

    return called


@pytest.fixture
def reported(call: Call) -> Reported:
    async def reported(url: str, rules: Mapping[str, Any], *more: str) -> Any:
        code, out, err = await call(url, rules, *more, "-o", "json")
        assert code == 0, err
        return json.loads(out)

    return reported
