"""`/openapi.json`: what every endpoint takes and answers, as OpenAPI 3.1. Made by hand.

The schemas promise no more than what callers may rely on; more keys may come.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from dynsched import __version__
from dynsched.api.nodes import MAX_ON_A_PAGE
from dynsched.api.transport.answering import PROBES

_Schema = Mapping[str, Any]

_TEXT: Final[_Schema] = {"type": "string"}
_COUNT: Final[_Schema] = {"type": "integer", "minimum": 0}
_FLAG: Final[_Schema] = {"type": "boolean"}
_REASONS: Final[_Schema] = {"type": "object", "additionalProperties": _TEXT}
_ERROR: Final[_Schema] = {"$ref": "#/components/schemas/Error"}


def _object(
    required: Mapping[str, _Schema], optional: Mapping[str, _Schema] | None = None
) -> _Schema:
    return {
        "type": "object",
        "required": list(required),
        "properties": {**required, **(optional or {})},
    }


def _array(items: _Schema) -> _Schema:
    return {"type": "array", "items": items}


def _or_null(schema: _Schema) -> _Schema:
    return {"anyOf": [schema, {"type": "null"}]}


_POD: Final = _or_null(
    _object(
        {},
        {
            "metadata": _or_null(_object({}, {"name": _TEXT, "namespace": _TEXT, "uid": _TEXT})),
            "spec": _or_null(_object({}, {"schedulerName": _or_null(_TEXT)})),
        },
    )
)
_NODE: Final = _object(
    {
        "metadata": _object(
            {"name": _TEXT},
            {"labels": {}},  # looked at for `require_label` alone; a Node goes back as it came
        )
    }
)
_NODES: Final = _object({}, {"items": _or_null(_array(_NODE))})
_ARGS: Final[_Schema] = {
    "type": "object",
    "properties": {
        "Pod": _POD,
        "Nodes": _or_null(_NODES),
        "NodeNames": _or_null(_array(_TEXT)),
    },
    "anyOf": [
        {"required": ["NodeNames"], "properties": {"NodeNames": {"type": "array"}}},
        {"required": ["Nodes"], "properties": {"Nodes": {"type": "object"}}},
    ],
}
_FILTERED: Final = _object(
    {
        "Nodes": _or_null(_NODES),
        "NodeNames": _or_null(_array(_TEXT)),
        "FailedNodes": _REASONS,
        "FailedAndUnresolvableNodes": _REASONS,
        "Error": _TEXT,
    }
)
_PRIORITIES: Final = _array(
    _object({"Host": _TEXT, "Score": {"type": "integer", "minimum": 0, "maximum": 10}})
)
_VIOLATIONS: Final[_Schema] = {"type": "integer"}
_META: Final[_Schema] = {
    "type": "object",
    "additionalProperties": _object(
        {"Pods": _array(_object({"UID": _TEXT})), "NumPDBViolations": _VIOLATIONS}
    ),
}
_VICTIMS: Final[_Schema] = {
    "type": "object",
    "additionalProperties": _object(
        {
            "Pods": _array(_object({"metadata": _object({"uid": _TEXT})})),
            "NumPDBViolations": _VIOLATIONS,
        }
    ),
}
_PREEMPTION: Final[_Schema] = {
    "type": "object",
    "properties": {
        "Pod": _POD,
        "NodeNameToVictims": _or_null(_VICTIMS),
        "NodeNameToMetaVictims": _or_null(_META),
    },
    "anyOf": [
        {"required": [key], "properties": {key: {"type": "object"}}}
        for key in ("NodeNameToVictims", "NodeNameToMetaVictims")
    ],
}
_NAME: Final[_Schema] = {"type": "string", "minLength": 1}
_BINDING: Final = _object(
    {"PodName": _NAME, "PodNamespace": _NAME, "Node": _NAME}, {"PodUID": _TEXT}
)

_POINTS: Final[_Schema] = {"type": "number"}
_EXPECTED: Final = _object(dict.fromkeys(("load", "measured", "bound", "ended"), _POINTS))
_RULE_ON_NODE: Final = _object(
    {
        "rule": _TEXT,
        "state": {"enum": ["inactive", "pending", "firing"]},
        "value": {"type": ["number", "null"]},
        "threshold": {"type": "number"},
        "clear_threshold": {"type": "number"},
        "sample_age_seconds": {"type": ["number", "null"]},
        "since": _TEXT,
        "early_of": {"type": ["string", "null"]},
        "expected": _or_null(_EXPECTED),
        "shadow": {"type": "boolean"},
    }
)
_DUE: Final = _object(
    {
        "action": {"enum": ["mark", "release", "repair"]},
        "changes": _array(_TEXT),
        "reason": _TEXT,
        "waits": _TEXT,
    }
)
_NODE_ANSWER: Final = _object(
    {
        "name": _TEXT,
        "marked": _FLAG,
        "pressured": _FLAG,
        "eligible": _FLAG,
        "since": {"type": ["string", "null"]},
        "rules": _array(_RULE_ON_NODE),
        "conflict": {"type": ["string", "null"]},
        "withheld": {"type": ["string", "null"]},
        "ineligible": {"type": ["string", "null"]},
        "carries": _array(_TEXT),
        "due": _or_null(_DUE),
        "early": _FLAG,
    }
)
_NODES_ANSWER: Final = _object(
    {
        "type": _TEXT,
        "num": _COUNT,
        "node_names": _array(_TEXT),
        "nodes": _array(_NODE_ANSWER),
        "taken_at": _TEXT,
        "dry_run": _FLAG,
        "rules_error": {"type": ["string", "null"]},
        "counts": _TEXT,
    },
    {"continue": _TEXT},
)


def _content(schema: _Schema, kind: str = "application/json") -> dict[str, Any]:
    return {kind: {"schema": schema}}


def _answers(
    schema: _Schema, *errors: tuple[int, str], kind: str = "application/json"
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "200": {"description": "the answer", "content": _content(schema, kind)}
    }
    for status, text in errors:
        found[str(status)] = {"description": text, "content": _content(_ERROR)}
    return found


def _get(summary: str, responses: dict[str, Any], *parameters: dict[str, Any]) -> dict[str, Any]:
    return {"get": {"summary": summary, "parameters": list(parameters), "responses": responses}}


_NOTHING_YET: Final = (503, "no tick has finished yet")
_NOT_LET_IN: Final = (
    (401, "no bearer token, or one that is not valid"),
    (403, "the token's user may not get this path"),
    (503, "the API server cannot be asked"),
)
_PLAIN: Final = "text/plain"
_REFUSED: Final = (
    (400, "unknown request"),
    (403, "asked by a page in a browser"),
    (404, "rules.yaml has no section `extender`"),
    (408, "too slow"),
    (413, "too large"),
    (415, "compressed"),
    (503, "too much is asked at a time"),
)


def _post(summary: str, takes: _Schema, answers: _Schema) -> dict[str, Any]:
    return {
        "post": {
            "summary": summary,
            "requestBody": {"required": True, "content": _content(takes)},
            "responses": _answers(answers, *_REFUSED),
        }
    }


def _extender_paths() -> dict[str, Any]:
    victims = _object({"NodeNameToMetaVictims": _META})
    verbs = {
        "filter": _post("which of the candidates pass", _ARGS, _FILTERED),
        "prioritize": _post("a score for each candidate", _ARGS, _PRIORITIES),
        "preempt": _post("which preemptions would help", _PREEMPTION, victims),
        "bind": _post("bind a pod to a node", _BINDING, _object({"Error": _TEXT})),
    }
    paths = {f"{prefix}/{verb}": of for prefix in ("", "/scheduler") for verb, of in verbs.items()}
    return {**paths, "/scheduler/preemption": verbs["preempt"]}


def _get_paths() -> dict[str, Any]:
    marked = {"name": "marked", "in": "query", "schema": {"enum": ["true", "false"]}}
    limit = {
        "name": "limit",
        "in": "query",
        "schema": {"type": "integer", "minimum": 1, "maximum": MAX_ON_A_PAGE},
    }
    after = {"name": "continue", "in": "query", "schema": _NAME}
    name = {"name": "name", "in": "path", "required": True, "schema": _NAME}
    status = _answers(_TEXT, kind=_PLAIN)
    status["200"]["content"].update(_content(_object({"ok": _FLAG, "version": _TEXT})))
    status["503"] = {**status["200"], "description": "why it is not ok"}
    ready = _answers(_TEXT, kind=_PLAIN)
    ready["503"] = {**ready["200"], "description": "what is missing"}
    detail = _answers(_NODE_ANSWER, (404, "no such node"), _NOTHING_YET)
    refused = (400, "marked, limit or continue is not understood")
    nodes = _answers(_NODES_ANSWER, refused, _NOTHING_YET)
    rules = _object({"mark": _object({}), "guard": _object({}), "rules": _array(_object({}))})
    node_query = {"name": "node", "in": "query", "schema": _NAME}
    nodes_query = {**node_query, "required": True, "schema": _array(_NAME)}
    columns = _object({"taken_at": _POINTS, "nodes": _object({}), "columns": _array(_object({}))})
    past = _object({"step": _POINTS, "times": _array(_POINTS), "nodes": _object({})})
    change = _object({"at": _POINTS, "node": _TEXT, "kind": _TEXT, "text": _TEXT})
    pods = _object({"bound": _or_null(_object({})), "above": _or_null(_array(_object({})))})
    return {
        "/": _get("the page, for a browser; else this list", _answers(_TEXT, kind="text/html")),
        "/status": _get("ok, or why not", status),
        "/nodes": _get("which nodes are marked, and why", nodes, marked, limit, after),
        "/nodes/{name}": _get("one node, and what would clear it", detail, name),
        "/rules": _get("the loaded rules and their health", _answers(rules, _NOTHING_YET)),
        "/metrics": _get("metrics of dynsched itself", _answers(_TEXT, kind=_PLAIN)),
        "/healthz": _get("the process answers", _answers(_TEXT, kind=_PLAIN)),
        "/readyz": _get("the nodes are listed and one tick is done", ready),
        "/page/data": _get("what the page shows", _answers(columns, _NOTHING_YET)),
        "/page/history": _get(
            "values of the last hour",
            _answers(past, (400, "no node is named, or too many are")),
            nodes_query,
        ),
        "/page/changes": _get("the last changes", _answers(_array(change)), node_query),
        "/page/pods": _get(
            "pods of a node that were just bound, or use more than they request",
            _answers(pods, (400, "no node is named")),
            {**node_query, "required": True},
        ),
        "/openapi.json": _get("this document", _answers(_object({"openapi": _TEXT}))),
    }


def openapi(*, extender: bool = True, bearer: bool = False) -> dict[str, Any]:
    """The document. ``extender``: whether the extender's paths are served beside the others;
    ``bearer``: whether the others, but for the probes, want a bearer token.
    """
    paths = _get_paths()
    components: dict[str, Any] = {"schemas": {"Error": _object({"error": _TEXT})}}
    if bearer:
        components["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
        for path in paths.keys() - PROBES:
            operation = paths[path]["get"]
            operation["security"] = [{"bearer": []}]
            operation["responses"] = {**_answers(_TEXT, *_NOT_LET_IN), **operation["responses"]}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "dynsched",
            "version": __version__,
            "description": "Which nodes are under pressure, and why; and a scheduler extender.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": {**paths, **(_extender_paths() if extender else {})},
        "components": components,
    }


def document(*, extender: bool, bearer: bool) -> bytes:
    """The document as it is sent."""
    return msgspec.json.encode(openapi(extender=extender, bearer=bearer))
