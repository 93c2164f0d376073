"""The number of a node's verdict, by which other programs act."""

from builders import rule
from snapshots import NOON, Scene, example

from dynsched.engine.model import Node
from dynsched.engine.snapshot import COOL, HOT, UNDECIDED, Snapshot


def values_of(snapshot: Snapshot) -> dict[str, float]:
    names = sorted(snapshot.nodes)
    found = snapshot.nodes.verdict_values(names)
    return dict(zip(names, found, strict=True))


def test_nodes_of_each_kind() -> None:
    """Marked and hot; held by `keep_firing_for`, in conflict, over the cap, pending, silent, not
    eligible; and cool.
    """
    expected = dict.fromkeys(example().nodes, UNDECIDED)
    assert values_of(example()) == expected | {"worker-1": COOL, "worker-2": HOT}


def test_rules_on_trial_do_not_count_and_early_marks_leave_it_open() -> None:
    rules = [rule("cpu", early={"above_mean": 0}), rule("mem"), rule("trial", shadow=True)]
    theirs = Node("theirs", labels={"status": "other"})
    scene = Scene({"rules": rules}, [theirs, *map(Node, ("early", "ours", "lost", "cool"))])
    plain = dict.fromkeys(scene.nodes, 10.0)
    cpu, hot = plain | {"early": 70.0, "ours": 90.0}, dict.fromkeys(scene.nodes, 99.0)
    scene.tick(NOON, cpu=cpu, mem=plain, trial=hot)
    del plain["lost"]
    expected = dict.fromkeys(("early", "theirs", "lost"), UNDECIDED) | {"ours": HOT, "cool": COOL}
    assert values_of(scene.tick(NOON + 10, cpu=cpu, mem=plain, trial=hot)) == expected
    silent = scene.tick(NOON + 20, cpu="refused", mem=plain, trial=hot)
    assert set(values_of(silent).values()) == {UNDECIDED}
    cooled = scene.tick(NOON + 30, cpu=dict.fromkeys(cpu, 10.0), mem=plain, trial=hot, dry_run=True)
    assert values_of(cooled)["ours"] == UNDECIDED  # the mark is still there
