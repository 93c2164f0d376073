"""The last step of the image's build: runs each import statement of dynsched, those within
functions too, and writes bytecode for every module that this loads, and for no other. So the build
ends where the image lacks a module, instead of a command a month later.
"""

from __future__ import annotations

import ast
import importlib
import py_compile
import sys
from pathlib import Path

import dynsched

NOT_IN_THE_IMAGE = "dynsched_sim"  # `dynsched demo` says so


def load() -> None:
    package = Path(dynsched.__path__[0])
    for path in sorted(package.rglob("*.py")):
        module = path.relative_to(package.parent).with_suffix("")
        importlib.import_module(".".join(module.parts).removesuffix(".__init__"))
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith(NOT_IN_THE_IMAGE):
                continue
            if isinstance(node, ast.Import | ast.ImportFrom):
                statement = ast.unparse(node)
                exec(statement, {})  # noqa: S102 - of our own source


def main() -> None:
    load()
    # Never compared with its source: nothing in the image changes, and its files' dates may.
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    for name, module in sorted(sys.modules.items()):
        source = getattr(module, "__file__", None) or ""
        if source.endswith(".py") and name != "__main__":
            py_compile.compile(source, doraise=True, invalidation_mode=mode)


if __name__ == "__main__":
    main()
