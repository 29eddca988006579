"""The tables of fields in docs/reference, from the same schemas as the CRDs, so that they say what the server does.

A page is written by hand; between the marks `<!-- fields of spec -->` and `<!-- end -->` stands what is generated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

_MARKED: Final = re.compile(r"(<!-- fields of (?P<part>spec|status) -->\n).*?(<!-- end -->)", re.DOTALL)


def fill(page: str, schema: Mapping[str, Any]) -> str:
    """The page with its tables renewed from an object's structural schema."""

    def table(match: re.Match[str]) -> str:
        part = schema["properties"][match["part"]]
        lines = ["| field | type | default | meaning |", "|---|---|---|---|", *_rows(part, "")]
        return f"{match[1]}\n" + "\n".join(lines) + f"\n\n{match[3]}"

    return _MARKED.sub(table, page)


def _rows(schema: Mapping[str, Any], prefix: str) -> Iterator[str]:
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        default = "required" if name in required else _default(field)
        yield f"| `{prefix}{name}` | {_type(field)} | {default} | {_words(field)} |"
        if "properties" in field:
            yield from _rows(field, f"{prefix}{name}.")
        elif "properties" in field.get("items", {}) and name != "conditions":
            yield from _rows(field["items"], f"{prefix}{name}[].")


def _type(field: Mapping[str, Any]) -> str:
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if "x-kubernetes-int-or-string" in field:
        return "number"
    if field["type"] == "integer":
        low, high = field.get("minimum"), field.get("maximum")
        return f"integer, {low} to {high}" if high is not None else f"integer from {low}" if low else "integer"
    if field["type"] == "array":
        most = f", at most {field['maxItems']}" if "maxItems" in field else ""
        keys = field.get("x-kubernetes-list-map-keys")
        return (f"list by `{keys[0]}`" if keys else "list") + most
    if "additionalProperties" in field:
        return "texts by key" if field["additionalProperties"] == {"type": "string"} else "resource list"
    return str(field["type"])


def _default(field: Mapping[str, Any]) -> str:
    if "default" not in field:
        return ""
    value = field["default"]
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _words(field: Mapping[str, Any]) -> str:
    # Rules of a list's items have no row of their own.
    validations = [
        *field.get("x-kubernetes-validations", ()),
        *field.get("items", {}).get("x-kubernetes-validations", ()),
    ]
    rules = [rule["message"] for rule in validations if "message" in rule]
    text = " ".join(str(field.get("description", "")).split())
    for rule in rules:
        text += f" {rule[0].upper()}{rule[1:]}."
    return text.replace("|", "\\|")
