"""What the tests of the backtest share."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from backtest_support import Call, Reported
from command_line import Ended, call_of


@pytest.fixture
def call(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    """Run `dynsched backtest` in a thread: (exit code, stdout, stderr)."""

    async def called(url: str, rules: Mapping[str, Any], *more: str) -> Ended:
        path = tmp_path / "rules.yaml"
        path.write_text(json.dumps(rules))  # JSON is YAML
        words = ["backtest", "--prom", url, "-r", path, *more]
        return await asyncio.to_thread(call_of, capsys, *words)

    return called


@pytest.fixture
def reported(call: Call) -> Reported:
    async def reported(url: str, rules: Mapping[str, Any], *more: str) -> Any:
        code, out, err = await call(url, rules, *more, "-o", "json")
        assert code == 0, err
        return json.loads(out)

    return reported
