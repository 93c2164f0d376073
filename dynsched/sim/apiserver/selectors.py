"""Label and field selectors, as the query string spells them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from dynsched.rules.labels import Selector as LabelSelector
from dynsched.rules.labels import parse_selector
from dynsched.sim.apiserver.refusals import bad_request

if TYPE_CHECKING:
    from dynsched.sim.apiserver.resources import Resource
    from dynsched.sim.apiserver.store import Entry

_TERM: Final = re.compile(r"\s*([^=!]+?)\s*(!=|==?)\s*(.*?)\s*")


class _Field(NamedTuple):
    name: str
    value: str
    negated: bool


class Selector(NamedTuple):
    """What a list or a watch is narrowed to. An empty one lets everything through."""

    labels: LabelSelector
    fields: tuple[_Field, ...]
    namespace: str

    @property
    def selective(self) -> bool:
        """Whether a label or field selector was given (a namespace alone is none)."""
        return bool(self.labels.requirements or self.fields)

    @property
    def everything(self) -> bool:
        """Whether nothing can be left out."""
        return not (self.selective or self.namespace)

    def __call__(self, entry: Entry) -> bool:
        """Whether the stored object is selected."""
        return (
            self.namespace in {"", entry.namespace}
            and self.labels.matches(entry.labels)
            and all((entry.fields.get(f.name, "") == f.value) != f.negated for f in self.fields)
        )


def parse(resource: Resource, query: Mapping[str, str], namespace: str) -> Selector:
    """The selector of a request; ApiError 400 when it is none."""
    try:
        labels = parse_selector(query.get("labelSelector", ""))
    except ValueError as error:
        raise bad_request(f"unable to parse requirement: {error}") from None
    terms = filter(None, query.get("fieldSelector", "").split(","))
    return Selector(labels, tuple(_field(resource, term) for term in terms), namespace)


def _field(resource: Resource, term: str) -> _Field:
    """``name=value`` or ``name!=value`` on a field that the resource offers."""
    found = _TERM.fullmatch(term)
    if found is None:
        raise bad_request(f"invalid field selector: can't understand '{term}'")
    name, operator, value = found.groups()
    if name not in resource.fields and name not in {"metadata.name", "metadata.namespace"}:
        raise bad_request(f"field label not supported: {name}")
    return _Field(name, value, negated=operator == "!=")
