"""`/openapi.json`: what every endpoint takes and answers, as OpenAPI 3.1.

The schemas are those of the types that are encoded, and of types that are written down here. They
promise no more than what callers may rely on; more keys may come.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import GenericAlias
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args

from msgspec import UNSET, Meta, UnsetType, defstruct
from msgspec.json import schema_components

from dynsched import __version__
from dynsched.api.extender.victims import MetaVictims
from dynsched.api.nodes import MAX_ON_A_PAGE, NodeAnswer, NodeDetail, NodesAnswer
from dynsched.api.page.changes import Change
from dynsched.api.transport.answering import PROBES

_Json = dict[str, Any]
Endpoints = Mapping[str, tuple[object, str]]
"""By path: its handler, and what it is for, in one line."""

_JSON: Final = "application/json"
_PLAIN: Final = "text/plain"


def _many(of: Any) -> Any:
    return GenericAlias(list, (of,))


def _by_node(of: Any) -> Any:
    return GenericAlias(dict, (str, of))


def _type(title: str, /, *bases: type, **fields: Any) -> Any:
    """An object; a field may be left out where UnsetType is among its types."""
    listed = [
        (key, of, UNSET) if UnsetType in get_args(of) else (key, of) for key, of in fields.items()
    ]
    return defstruct(title, listed, bases=bases, kw_only=True)


def _with_one(of: Any, **kinds: str) -> Any:
    """One at least of these fields is there, and of this kind, so not null."""
    given = [{"required": [key], "properties": {key: {"type": it}}} for key, it in kinds.items()]
    return Annotated[of, Meta(extra_json_schema={"anyOf": given})]


_Name: Any = Annotated[str, Meta(min_length=1)]
_Score: Any = Annotated[int, Meta(ge=0, le=10)]
_ERROR: Final = _type("Error", error=str)
_POD: Final = _type(
    "Pod",
    metadata=_type("PodMetadata", uid=str | UnsetType) | None | UnsetType,
    spec=_type("PodSpec", schedulerName=str | None | UnsetType) | None | UnsetType,
)
_NODE: Final = _type("Node", metadata=_type("NodeMetadata", name=str))
_NODE_LIST: Final = _type("NodeList", items=_many(_NODE) | None | UnsetType)
_ARGS: Final = _with_one(
    _type(
        "ExtenderArgs",
        Pod=_POD | None | UnsetType,
        Nodes=_NODE_LIST | None | UnsetType,
        NodeNames=list[str] | None | UnsetType,
    ),
    NodeNames="array",
    Nodes="object",
)
_FILTERED: Final = _type(
    "ExtenderFilterResult",
    Nodes=_NODE_LIST | None,
    NodeNames=list[str] | None,
    FailedNodes=dict[str, str],
    FailedAndUnresolvableNodes=dict[str, str],
    Error=str,
)
_VICTIM: Final = _type("Victim", metadata=_type("VictimMetadata", uid=str))
_VICTIMS: Final = _by_node(_type("Victims", Pods=_many(_VICTIM), NumPDBViolations=int))
_META_VICTIMS: Final = dict[str, MetaVictims]
_PREEMPTION: Final = _with_one(
    _type(
        "ExtenderPreemptionArgs",
        Pod=_POD | None | UnsetType,
        NodeNameToVictims=_VICTIMS | None | UnsetType,
        NodeNameToMetaVictims=_META_VICTIMS | None | UnsetType,
    ),
    NodeNameToVictims="object",
    NodeNameToMetaVictims="object",
)
_BINDING: Final = _type(
    "ExtenderBindingArgs",
    PodName=_Name,
    PodNamespace=_Name,
    Node=_Name,
    PodUID=str | UnsetType,
)
_PREEMPT: Final = (
    _PREEMPTION,
    _type("ExtenderPreemptionResult", NodeNameToMetaVictims=_META_VICTIMS),
)
_VERBS: Final[Mapping[str, tuple[Any, Any]]] = {
    "filter": (_ARGS, _FILTERED),
    "prioritize": (_ARGS, _many(_type("HostPriority", Host=str, Score=_Score))),
    "preempt": _PREEMPT,
    "preemption": _PREEMPT,
    "bind": (_BINDING, _type("ExtenderBindingResult", Error=str)),
}
"""By the end of a path: what it takes and answers."""

_NODES_ANSWER: Final = _type("Nodes", NodesAnswer, nodes=list[NodeAnswer])
_STATUS: Final = _type("Status", ok=bool, version=str)
_RULES: Final = _type("Rules", mark=_Json, guard=_Json, rules=list[_Json])
_PAGE: Final = _type("PageData", taken_at=float, nodes=_Json, columns=list[_Json])
_PAST: Final = _type("PageHistory", step=float, times=list[float], nodes=_Json)
_PODS: Final = _type("PagePods", bound=_Json | None, above=list[_Json] | None)

_NOTHING_YET: Final = {503: "no tick has finished yet"}
_NOT_LET_IN: Final = {
    401: "no bearer token, or one that is not valid",
    403: "the token's user may not get this path",
    503: "the API server cannot be asked",
}
_REFUSED: Final = {
    400: "unknown request",
    403: "asked by a page in a browser",
    404: "rules.yaml has no section `extender`",
    408: "too slow",
    413: "too large",
    415: "compressed",
    503: "too much is asked at a time",
}


class _Parameter(NamedTuple):
    """Where it is: in the query, or in the path."""

    name: str
    kind: Any
    required: bool = False
    place: str = "query"


class _Get(NamedTuple):
    """What is answered, in which form, and instead of it. ``not_ok``: when the answer has status
    503; ``as_json``: the answer to who wants JSON.
    """

    kind: Any
    errors: Mapping[int, str] = {}
    parameters: tuple[_Parameter, ...] = ()
    media: str = _JSON
    not_ok: str = ""
    as_json: Any = None


_LIMIT: Final[Any] = Annotated[int, Meta(ge=1, le=MAX_ON_A_PAGE)]
_GETS: Final[Mapping[str, _Get]] = {
    "/": _Get(str, media="text/html"),
    "/status": _Get(str, media=_PLAIN, not_ok="why it is not ok", as_json=_STATUS),
    "/nodes": _Get(
        _NODES_ANSWER,
        {400: "marked, limit or continue is not understood", **_NOTHING_YET},
        (
            _Parameter("marked", Literal["true", "false"]),
            _Parameter("limit", _LIMIT),
            _Parameter("continue", _Name),
        ),
    ),
    "/nodes/{name}": _Get(
        NodeDetail,
        {404: "no such node", **_NOTHING_YET},
        (_Parameter("name", _Name, required=True, place="path"),),
    ),
    "/rules": _Get(_RULES, _NOTHING_YET),
    "/metrics": _Get(str, media=_PLAIN),
    "/page/data": _Get(_PAGE, _NOTHING_YET),
    "/page/history": _Get(
        _PAST,
        {400: "no node is named, or too many are"},
        (_Parameter("node", _many(_Name), required=True),),
    ),
    "/page/changes": _Get(list[Change], parameters=(_Parameter("node", _Name),)),
    "/page/pods": _Get(
        _PODS, {400: "no node is named"}, (_Parameter("node", _Name, required=True),)
    ),
    "/healthz": _Get(str, media=_PLAIN),
    "/readyz": _Get(str, media=_PLAIN, not_ok="what is missing"),
    "/openapi.json": _Get(_type("Document", openapi=str)),
}


class _Document:
    """Collects the paths, and the schemas to which they refer."""

    def __init__(self) -> None:
        self.paths: _Json = {}
        self.schemas: _Json = {}

    def get(self, path: str, summary: str, *, bearer: bool) -> None:
        asked = _GETS[path]
        responses = self._responses(asked.kind, asked.errors, asked.media)
        if asked.as_json is not None:
            responses["200"]["content"] |= self._content(asked.as_json)
        if asked.not_ok:
            responses["503"] = {**responses["200"], "description": asked.not_ok}
        operation: _Json = {"summary": summary, "responses": responses}
        operation["parameters"] = [
            {"name": it.name, "in": it.place, "required": it.required, "schema": self._of(it.kind)}
            for it in asked.parameters
        ]
        if bearer and path not in PROBES:
            operation["security"] = [{"bearer": []}]
            operation["responses"] = self._responses(str, _NOT_LET_IN) | responses
        self.paths[path] = {"get": operation}

    def post(self, path: str, summary: str) -> None:
        takes, answers = _VERBS[path.rpartition("/")[2]]
        self.paths[path] = {
            "post": {
                "summary": summary,
                "requestBody": {"required": True, "content": self._content(takes)},
                "responses": self._responses(answers, _REFUSED),
            }
        }

    def _responses(self, kind: Any, errors: Mapping[int, str], media: str = _JSON) -> _Json:
        answer = {"description": "the answer", "content": self._content(kind, media)}
        refusals = {
            str(status): {"description": text, "content": self._content(_ERROR)}
            for status, text in errors.items()
        }
        return {"200": answer, **refusals}

    def _content(self, kind: Any, media: str = _JSON) -> _Json:
        return {media: {"schema": self._of(kind)}}

    def _of(self, kind: Any) -> _Json:
        (schema,), named = schema_components([kind], ref_template="#/components/schemas/{name}")
        self.schemas |= named
        return schema


def openapi(endpoints: Endpoints, extender: Endpoints, *, bearer: bool = False) -> _Json:
    """The document. ``bearer``: whether ``endpoints``, but for the probes, want a bearer token."""
    found = _Document()
    for path, (_, summary) in endpoints.items():
        found.get(path, summary, bearer=bearer)
    for path, (_, summary) in extender.items():
        found.post(path, summary)
    components: _Json = {"schemas": found.schemas}
    if bearer:
        components["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "dynsched",
            "version": __version__,
            "description": "Which nodes are under pressure, and why; and a scheduler extender.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": found.paths,
        "components": components,
    }
