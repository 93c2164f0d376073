"""The modes, shared by the real servers and the simulator: who places pods, and with what help.

Rules have real-time durations here; `closedloop.faster` shortens them.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from closedloop.peers.beside import SoftTainter
from closedloop.players import Default, Dynsched, Oracle
from closedloop.world import Player, World

sys.path.append(str(Path(__file__).parent.parent.parent / "tests" / "support"))

from scheduling_support import AVOID, TAINT

Doc = dict[str, Any]

SHIPPED = Path(__file__).parent.parent.parent / "rules.yaml"
SECOND = "cpu-real-usage-scheduler"
_SECOND_OVERLAY = "real-usage-scheduler"
_NO_MARKS = ("--dry-run",)
SOFT_TAINTER, DESCHEDULER = "soft-tainter", "descheduler"
"""Names of programs."""


@dataclass(frozen=True)
class Mode:
    """``content``: dynsched's rules; None: without dynsched. ``overlay``: the overlay whose
    scheduler configuration is used; None: the default scheduler. ``pod``: additional fields of a
    pod's spec. ``flags``: additional flags for `dynsched run`. ``placer``: places pods instead of a
    scheduler. ``by_webhook``: pods get the order from the webhook, not from the policy.
    ``beside``: the programs of `closedloop.soft_tainter` that replace dynsched.
    """

    content: Doc | None = None
    overlay: str | None = None
    pod: Doc = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    placer: Callable[[World], Player] | None = None
    by_webhook: bool = False
    beside: tuple[str, ...] = ()

    @property
    def orders(self) -> bool:
        """Whether new pods get the order."""
        return self.content is not None and "order" in self.content

    def player(self, content: Doc | None) -> Callable[[World], Player]:
        """The simulator's counterpart of this mode. ``content``: the shortened rules."""
        if self.placer is not None:
            return self.placer
        if content is None:
            return _soft_tainter(self.beside) if self.beside else Default
        return functools.partial(
            Dynsched,
            content=content,
            marks="--dry-run" not in self.flags,
            affinity="affinity" in self.pod,
            extender=self.overlay is not None,
            order="order" in content,
            by_requests=self.overlay != _SECOND_OVERLAY,
        )


DEFAULT, ORACLE = "default", "oracle"
_BESIDE = (SOFT_TAINTER,), (SOFT_TAINTER, DESCHEDULER), (DESCHEDULER,)


def modes(base: Doc) -> dict[str, Mode]:
    """All modes by name, with the rules of ``base``; the order is included if the name says so."""
    given = base
    base = {key: it for key, it in base.items() if key != "order"}
    label = {**base, "mark": {key: it for key, it in _mark(base).items() if key != "taint"}}
    taint = {**base, "mark": {**_mark(base), "taint": TAINT}}
    second: Doc = {"overlay": _SECOND_OVERLAY, "pod": {"schedulerName": SECOND}}
    second["flags"] = _NO_MARKS
    no_marks: Doc = {**base, "mark": "none"}
    avoiding: Doc = {"affinity": AVOID}
    return {
        DEFAULT: Mode(),
        ORACLE: Mode(placer=Oracle),
        "label": Mode(label, pod=avoiding),
        "taint": Mode(taint),
        "expected+taint": Mode(by_expected_load(taint)),
        "order": Mode(ordered(no_marks)),
        "order+webhook": Mode(ordered(no_marks), by_webhook=True),
        "order+none-equal": Mode(ordered(no_marks, equal_below=0)),
        "order+pack": Mode(ordered(no_marks, pack=True)),
        "order+label": Mode(beside_order(label), pod=avoiding),
        "order+taint": Mode(beside_order(taint)),
        "extender": Mode(scored(base, "relative"), overlay="extender", flags=_NO_MARKS),
        "extender+taint": Mode(scored(taint, "relative"), overlay="extender"),
        "second": Mode(scored(base, "relative", SECOND), **second),
        **{"+".join(each): Mode(beside=each) for each in _BESIDE},
        "as-given": Mode(given, pod=avoiding),
        "as-given+extender": Mode(given, overlay="extender"),
    }


def scored(base: Doc, method: str, profile: str = "default") -> Doc:
    """The rules with a profile for the extender, which scores by the first rule."""
    score = {base["rules"][0]["name"]: 1}
    return {**base, "extender": {"profiles": {profile: {"score": score, "method": method}}}}


def ordered(base: Doc, **more: Any) -> Doc:
    """The rules with an order by the first rule; ``more``: other settings of the order."""
    return {**base, "order": {"score": {base["rules"][0]["name"]: 1}, **more}}


def beside_order(base: Doc) -> Doc:
    """`ordered`, and marks only on nodes that stay hot, as docs/order.md recommends."""
    return ordered({**base, "rules": [{**rule, "for": "3m"} for rule in base["rules"]]})


def by_expected_load(base: Doc) -> Doc:
    """The rules with marks by expected load, as docs/expected-load.md recommends."""
    line = {"by": "expected", "threshold": 70, "clear_threshold": 60}
    durations = {"for": "0s", "keep_firing_for": "0s"}
    return {**base, "rules": [{**rule, **line, **durations} for rule in base["rules"]]}


def read_rules(path: Path) -> Doc:
    """A rules file without its memory rules, because memory plays no role here."""
    content: Doc = yaml.safe_load(path.read_text())
    rules = [rule for rule in content["rules"] if "memory" not in str(rule).lower()]
    return {**content, "rules": rules}


def _soft_tainter(programs: tuple[str, ...]) -> Callable[[World], Player]:
    """The model of soft-tainter, also ten times faster than real time."""
    return functools.partial(
        SoftTainter,
        how=replace(SoftTainter.LINES, every=SoftTainter.LINES.every // 10),
        minute=6.0,
        taints=SOFT_TAINTER in programs,
        descheduler=DESCHEDULER in programs,
    )


def _mark(base: Doc) -> Doc:
    return base.get("mark") or {}
