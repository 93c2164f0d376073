import json
from itertools import product

import pytest
from builders import NOON, answer, node, rule, unlimited

from dynsched.core.alerts import NodePressure
from dynsched.core.evaluate import evaluate
from dynsched.core.mark_record import FiredRule, MarkRecord, read_record, write_record
from dynsched.core.marks import plan_prune
from dynsched.rules.labels import LabelMark, Mark, TaintMark
from dynsched.rules.rule_set import RuleSet

LABEL = LabelMark("status", "presure")
TAINT = TaintMark("dynsched.io/pressure", "true")
NOTHING = MarkRecord(None, None, ())


def hot(rules: RuleSet, **values: float) -> NodePressure:
    """The pressure of one node, given the value of each rule."""
    answers = {name: answer({"n1": value}) for name, value in values.items()}
    return evaluate(rules, answers, {"n1": node()}, None, NOON).pressures["n1"]


def test_the_text_of_a_record() -> None:
    rules = unlimited(rule("cpu"), rule("memory", threshold=0.5), rule("disk"))
    text = write_record(Mark(LABEL, TAINT), hot(rules, cpu=91.23456, memory=0.75, disk=3))
    assert text == (
        '{"label":"status=presure","taint":"dynsched.io/pressure=true:PreferNoSchedule",'
        '"since":"2023-11-14T22:13:20Z","rules":['
        '{"rule":"cpu","value":91.23,"threshold":80.0,"since":"2023-11-14T22:13:20Z"},'
        '{"rule":"memory","value":0.75,"threshold":0.5,"since":"2023-11-14T22:13:20Z"}]}'
    )


@pytest.mark.parametrize(
    "mark", [Mark(LABEL), Mark(None, TAINT), Mark(LABEL, TAINT), Mark(LabelMark("a.b/c", "d"))]
)
def test_a_record_that_was_written_can_be_read_back(mark: Mark) -> None:
    rules = unlimited(rule("cpu"), rule("处理器"), rule("disk"))
    text = write_record(mark, hot(rules, cpu=90, disk=10, 处理器=95))
    found = read_record(node(evidence=text))
    fired = FiredRule("cpu", NOON), FiredRule("处理器", NOON)
    assert found == MarkRecord(mark.label, mark.taint, fired, since=NOON)
    assert "处理器" in text
    assert read_record(node()) is None


UNREADABLE = [
    "", "{", "null", "7", '"status=presure"', "[]", "NaN", "{}", "1" * 5000, "[" * 100_000,
    '{"a":' * 100_000, "\ud800", '{"label":null,"taint":null,"rules":null}',
    '{"label":7,"taint":{},"rules":{}}', '{"label":["status=presure"],"taint":true,"rules":"cpu"}',
    '{"label":{"key":"status","value":"presure"}}', '{"label":"status"}',
    '{"label":"","taint":"","rules":[7,null,["cpu"],{"rule":7},{}]}',
    '{"since":"9999-12-31T23:59:59-23:59","value":' + "9" * 400 + "}",
]  # fmt: skip


@pytest.mark.parametrize("text", UNREADABLE, ids=range(len(UNREADABLE)))
def test_unreadable_parts_of_a_record_count_as_not_recorded(text: str) -> None:
    assert read_record(node(evidence=text)) == NOTHING
    odd = '{"rule":"odd","value":NaN,"since":7}'
    rest = f'"taint":"dynsched.io/a=b:PreferNoSchedule","rules":[{{"rule":"cpu"}},3,{odd}]'
    assert read_record(node(evidence=f'{{"label":7,{rest}}}')) == MarkRecord(
        None, TaintMark("dynsched.io/a", "b"), (FiredRule("cpu"), FiredRule("odd"))
    )


@pytest.mark.parametrize(
    "since", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-23:59", "9999-12-31T23:59:59Z"]
)
def test_a_forged_time_does_not_break_the_tick(since: str) -> None:
    """Otherwise anyone who may write to one node could stop every dynsched instance."""
    fired = {"rule": "cpu", "value": 90, "threshold": 80, "since": since}
    text = json.dumps({"label": "status=presure", "since": since, "rules": [fired]})
    rules = unlimited(rule("cpu"), mark={"label": "status=presure", "taint": str(TAINT)})
    forged = {"n1": node(labels={"status": "presure"}, evidence=text)}
    (patch,) = evaluate(rules, {"cpu": answer({"n1": 90})}, forged, None, NOON).patches
    written = json.loads(patch.body["metadata"]["annotations"]["dynsched.io/pressure"])
    assert written["since"] == written["rules"][0]["since"] == "2023-11-14T22:13:20Z"


def test_a_forged_record_does_not_make_us_remove_a_label_or_taint_that_we_never_write() -> None:
    labels = {
        "kubernetes.io/hostname": "n1",
        "node-role.kubernetes.io/worker": "",
        "topology.kubernetes.io/zone": "a",
        "dynsched.io/ignore": "true",
    }
    taints = [
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
        {"key": "gpu", "value": "true", "effect": "PreferNoSchedule"},
        {"key": "dynsched.io/pressure", "value": "true", "effect": "NoSchedule"},
        {"key": "dynsched.io/pressure", "value": "true", "effect": "NoExecute"},
    ]
    for label, taint in product(labels.items(), taints):
        text = f"{taint['key']}={taint.get('value', '')}:{taint['effect']}"
        record = json.dumps({"label": "=".join(label), "taint": text, "rules": []})
        forged = node(labels=labels, taints=taints, evidence=record)
        (patch,) = plan_prune([forged], Mark(LABEL, TAINT))
        assert patch.body == {
            "metadata": {"resourceVersion": "1", "annotations": {"dynsched.io/pressure": None}}
        }
