"""Dataclasses to JSON and back; errors name the field that does not belong.

A field whose metadata has `of` holds a node of that class, a tuple of them with `many`;
one with `omit` is left out of the JSON where it has its default.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Json: TypeAlias = "dict[str, Json] | list[Json] | str | float | None"
_Node = TypeVar("_Node")


def encode(
    node: DataclassInstance | tuple[Any, ...] | Mapping[str, Any] | str | float | None,
) -> Any:
    """Convert a dataclass, field by field, to types that JSON has."""
    if isinstance(node, tuple):
        return [encode(entry) for entry in node]
    if isinstance(node, Mapping):
        return dict(node)
    if not dataclasses.is_dataclass(node):
        return node
    values = {field: getattr(node, field.name) for field in dataclasses.fields(node)}
    return {
        field.name: encode(value)
        for field, value in values.items()
        if value != field.default or not field.metadata.get("omit")
    }


def decode(kind: type[_Node], document: Json, path: str = "") -> _Node:
    """Return the node that `encode` wrote.

    Args:
        kind: Its class.
        document: Its JSON.
        path: Place of that in the whole document, for errors; "" at the top.

    Raises:
        ValueError: If a field is missing, unknown, or refused by its class; it names
            the field from the top, as in "layers[0].norm.width".
    """
    return _decode(kind, document, path)


def write_json(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def read_json(text: str, what: str = "the manifest") -> dict[str, Any]:
    """Parse a text that must hold a JSON object; errors name the text.

    Raises:
        ValueError: If the text is no JSON object, has a name twice, or a number that
            JSON does not have.
    """
    if not isinstance(text, str):
        raise ValueError(f"{what} must be text, got {type(text).__name__}")
    try:
        document: Json = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_refuse_constant
        )
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{what} is no JSON: {error}") from None
    if not isinstance(document, dict):
        raise ValueError(f"{what} must be an object, got {short(document)}")
    return document


def check_format(document: dict[str, Any], kind: str, version: int) -> None:
    """Remove format and version from a document, and check them.

    Raises:
        ValueError: If one of them is missing or differs.
    """
    for name, expected in (("format", kind), ("version", version)):
        value = document.pop(name, None)
        if type(value) is not type(expected) or value != expected:
            raise ValueError(f"{name} must be {expected!r}, got {short(value)}")


def short(value: Any) -> str:
    """Return a value's repr for an error, cut to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _decode(kind: Any, value: Json, path: str) -> Any:
    prefix = f"{path}." if path else ""
    if not isinstance(value, dict):
        raise ValueError(f"{path} must be an object, got {short(value)}")
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for name in value:
        if name not in fields:
            raise ValueError(f"{prefix}{short(name)[1:-1]} is unknown")
    arguments: dict[str, Any] = {}
    for name, field in fields.items():
        omit = field.metadata.get("omit")
        if name not in value:
            if omit:
                continue
            raise ValueError(f"{prefix}{name} is missing")
        field_value = value[name]
        if omit and field_value is field.default:
            raise ValueError(f"{prefix}{name} must not be {field_value}: leave it out")
        arguments[name] = _decode_field(field, field_value, f"{prefix}{name}")
    try:
        return kind(**arguments)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{prefix}{error}") from None


def _decode_field(field: dataclasses.Field[Any], field_value: Json, path: str) -> Any:
    node = field.metadata.get("of")
    if node is None or (field_value is None and str(field.type).endswith("| None")):
        return field_value
    if not field.metadata.get("many"):
        return _decode(node, field_value, path)
    if not isinstance(field_value, list):
        raise ValueError(f"{path} must be a list, got {short(field_value)}")
    return tuple(
        _decode(node, entry, f"{path}[{index}]")
        for index, entry in enumerate(field_value)
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{short(twice)} appears twice")
    return document


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")
