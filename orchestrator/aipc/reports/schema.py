"""The published form of a report, made from its dataclasses: `python -m aipc.reports.schema > report.schema.json`."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import json
import re
import sys
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aipc.reports.report import REPORT_SCHEMA, Report
from runtimes.contract import Json

PUBLISHED = Path(__file__).with_name("report.schema.json")

_SCALARS: Mapping[Any, str] = types.MappingProxyType({str: "string", int: "integer", float: "number", bool: "boolean"})
_ATTRIBUTE = re.compile(r"^ {4}(\w+): (.+(?:\n {8}.+)*)", re.MULTILINE)


def published() -> str:
    """Return the JSON schema of a report as text; every key that aipc writes is required, and no other is allowed."""
    definitions: dict[str, Json] = {}
    _value(Report, definitions)
    report = definitions.pop("Report")
    report["properties"]["report_schema"]["const"] = REPORT_SCHEMA
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Report of aipc on one cell",
        **report,
        "$defs": dict(sorted(definitions.items())),
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _object(cls: type[Any], definitions: dict[str, Json]) -> Json:
    """Return the schema of a dataclass; its docstring describes its keys."""
    hints = typing.get_type_hints(cls)
    text = inspect.getdoc(cls) or ""
    said = {name: " ".join(words.split()) for name, words in _ATTRIBUTE.findall(text)}
    properties = {}
    for field in dataclasses.fields(cls):
        schema = _value(hints[field.name], definitions)
        described = {"description": said[field.name]} if field.name in said else {}
        properties[field.name] = {**schema, **described}
    return {
        "type": "object",
        "description": text.partition("\n")[0],
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _value(hint: Any, definitions: dict[str, Json]) -> dict[str, Json]:
    """Return the schema of a type that `contract.decode` understands; dataclasses go to `definitions`."""
    if hint in _SCALARS:
        return {"type": _SCALARS[hint]}
    if hint is type(None):
        return {"type": "null"}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {"enum": [member.value for member in hint]}
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if hint.__name__ not in definitions:
            definitions[hint.__name__] = {}
            definitions[hint.__name__] = _object(hint, definitions)
        return {"$ref": f"#/$defs/{hint.__name__}"}
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_value(choice, definitions) for choice in inner]}
    if origin is tuple:
        return {"type": "array", "items": _value(inner[0], definitions)}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _value(inner[1], definitions)}
    return {}


if __name__ == "__main__":
    sys.stdout.write(published())
