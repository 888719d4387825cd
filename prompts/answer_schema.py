"""Prepare JSON schemas for grammars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import PromptError

#: Most levels of a schema: recursion in other programs ends at a few hundred.
_DEEPEST = 64

#: Keywords whose values are schemas; lists of such; and objects of such.
_ONE = ("additionalProperties", "items", "contains", "propertyNames")
_LISTS, _OBJECTS = ("anyOf", "oneOf", "prefixItems"), ("properties", "patternProperties", "$defs", "definitions")

#: Keywords by which several schemas describe one object.
_JOINING = ("allOf", "if", "dependentSchemas", "unevaluatedProperties")

#: The key of the whole schema in a part of it, to which the part's references lead.
_ROOT = "octavo-root"


def closed(schema: Any, param: str) -> dict[str, Any]:
    """Return a schema whose objects have no fields but those it names, unless it says otherwise.

    A model would make up fields. Where several schemas describe one object, it stays open.

    Raises
    ------
    PromptError
        It is not a schema, or nested too deeply.
    """
    if not isinstance(schema, (Mapping, bool)):
        raise PromptError("A JSON schema is an object.", param=param)
    if _depth(schema) > _DEEPEST:
        raise PromptError(f"The JSON schema has more than {_DEEPEST} levels: nest it less.", param=param)
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    return dict(schema) if _has(schema, _JOINING) else _closed(schema)


def _closed(schema: Mapping[str, Any]) -> dict[str, Any]:
    made = dict(schema)
    for name in _ONE:
        if isinstance(made.get(name), Mapping):
            made[name] = _closed(made[name])
    for name in _LISTS:
        if isinstance(made.get(name), list):
            made[name] = [_closed(each) if isinstance(each, Mapping) else each for each in made[name]]
    for name in _OBJECTS:
        if isinstance(made.get(name), Mapping):
            made[name] = {key: _closed(each) if isinstance(each, Mapping) else each for key, each in made[name].items()}
    if "properties" in made and made.keys().isdisjoint(("patternProperties", "anyOf", "oneOf", "$ref")):
        made.setdefault("additionalProperties", False)
    return made


def _depth(value: Any) -> int:
    """Return how deep a JSON value is nested, up to one more than is allowed."""
    depth, level = 0, [value]
    while level and depth <= _DEEPEST:
        depth += 1
        inner = (each.values() if isinstance(each, Mapping) else each for each in level)
        level = [value for values in inner if not isinstance(values, (str, int, float, type(None))) for value in values]
    return depth


def resolved(root: Mapping[str, Any], schema: Any) -> Mapping[str, Any]:
    """Return the schema that a reference within `root` means; {} for one without a meaning."""
    for _ in range(_DEEPEST):
        if not isinstance(schema, Mapping):
            return {}
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return schema
        schema = root
        for key in reference.removeprefix("#").split("/")[1:]:
            schema = schema.get(key.replace("~1", "/").replace("~0", "~")) if isinstance(schema, Mapping) else None
    return {}


def part_of(root: Mapping[str, Any], schema: Any) -> Mapping[str, Any]:
    """Return a part of a schema as a schema whose references still lead to the same definitions."""
    if not isinstance(schema, Mapping):
        return {} if schema else {"not": {}}
    if not _has(schema, ("$ref",)):
        return schema
    return {**_moved(schema), "$defs": {_ROOT: _moved(root)}}


def _has(schema: Any, names: Sequence[str]) -> bool:
    """Return whether a schema has one of some keywords, anywhere."""
    if isinstance(schema, Mapping):
        return not schema.keys().isdisjoint(names) or any(_has(each, names) for each in schema.values())
    return isinstance(schema, list) and any(_has(each, names) for each in schema)


def _moved(schema: Any) -> Any:
    """Return a schema with references to where its root has moved."""
    if isinstance(schema, list):
        return [_moved(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    made = {key: _moved(each) for key, each in schema.items()}
    if isinstance(reference := schema.get("$ref"), str) and reference.startswith("#"):
        made["$ref"] = f"#/$defs/{_ROOT}{reference[1:]}"
    return made
