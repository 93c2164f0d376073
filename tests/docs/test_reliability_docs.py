"""docs/reliability.md explains what can be seen in the cluster."""

from __future__ import annotations

import re

from programs import ROOT


def test_every_reason_of_an_event_is_explained() -> None:
    page = (ROOT / "docs/reliability.md").read_text()
    keys = (ROOT / "dynsched/core/keys.py").read_text()
    reasons = re.findall(r'^REASON_\w+: Final = "(\w+)"', keys, re.MULTILINE)
    assert reasons
    assert reasons == re.findall(r"^\| `(\w+)`(?: \(Warning\))? \| the ", page, re.MULTILINE)
