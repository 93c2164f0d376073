"""manifests/components/descheduler: what its query is answered, by Prometheus's own promtool."""

from __future__ import annotations

import json
from pathlib import Path

from descheduler_support import QUERY
from programs import ROOT, need, run

CASES = ROOT / "tests/promtool/descheduler.test.yaml"


def test_only_verdicts_of_the_last_minute_are_answered(tmp_path: Path) -> None:
    path = tmp_path / "cases.yaml"
    path.write_text(CASES.read_text().replace("expr: QUERY", f"expr: {json.dumps(QUERY)}"))
    done = run(need("promtool", "prometheus"), "test", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr
