"""The patch formats: JSON merge patch, and of strategic merge patches those that mean the same."""

from __future__ import annotations

from typing import Any

from dynsched.sim.apiserver.refusals import bad_request


def merge_patch(document: Any, patch: Any) -> Any:
    """RFC 7386: null removes, mappings merge, everything else replaces (lists too)."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def strategic_patch(document: Any, patch: dict[str, Any]) -> Any:
    """As ``kubectl cordon`` and ``kubectl taint`` send it: mappings, and the list of taints, which
    is atomic in the real server's types too. ApiError for directives and for other lists.
    """
    others = patch | {"spec": {k: v for k, v in (patch.get("spec") or {}).items() if k != "taints"}}
    if not _is_plain(others):
        raise bad_request(
            "this server takes no strategic merge patch with directives or with lists other than"
            " spec.taints: use a merge patch"
        )
    return merge_patch(document, patch)


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(not key.startswith("$") and _is_plain(child) for key, child in value.items())
    return not isinstance(value, list)
