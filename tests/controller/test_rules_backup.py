import asyncio
from types import SimpleNamespace

from builders import rule, rule_set
from pods_support import reached

from dynsched.controller import rules_backup


async def test_who_leads_again_keeps_its_rules_though_another_kept_others() -> None:
    """A start with a refused file went on by rules that had been taken back."""
    rules, leading, told = rule_set(rule()), [True], [True]
    kept = SimpleNamespace(text=None)

    async def read() -> str | None:
        return kept.text

    async def write(text: str) -> None:
        kept.text = text

    def leads() -> bool:
        told.append(leading[-1])
        return leading[-1]

    async def nothing(_: object) -> dict[str, str]:
        return {}

    kept.read, kept.write = read, write
    file = SimpleNamespace(text="ours", rule_set=rules)
    stop = asyncio.Event()
    backup = rules_backup.RulesBackup(kept, file, leads, lambda: rules, refused=nothing)
    task = asyncio.create_task(backup.run(stop))
    await reached(lambda: kept.text, "ours")
    leading.append(False)
    await reached(lambda: told[-1], False)
    kept.text = "theirs"
    leading.append(True)
    await reached(lambda: kept.text, "ours")
    stop.set()
    await task
