"""JSON read strictly: no NaN, no key twice in an object, no object far larger than any that the schemas know."""

from __future__ import annotations

from collections.abc import Iterable
from json import JSONDecoder
from typing import Any

from pydantic_core import from_json

from eaco_datasets.errors import InputError
from eaco_serving.problems import pointer

MAX_KEYS = 64
"""Most keys of one object: no wire model has half as many, and each unknown key would cost an error of its own."""


def parse_strict(raw: bytes) -> Any:
    """The JSON value in ``raw``.

    Raises:
        ValueError: it is not JSON.
        InputError: at the JSON pointer of a key that stands twice, or of an object with more than ``MAX_KEYS`` keys.
    """
    value = from_json(raw, allow_inf_nan=False)
    text = raw.decode()
    try:
        _CHECKING.decode(text)
    except _OddObjectError:
        _refuse_odd(_KEEPING.decode(text), [])
    return value


class _OddObjectError(Exception):
    """Some object has a key twice, or too many keys."""


class _Pairs(list[tuple[str, Any]]):
    """An object as its keys and values in order, repeated ones too."""


def _check(pairs: list[tuple[str, Any]]) -> None:
    if len(pairs) > MAX_KEYS or len(dict(pairs)) < len(pairs):
        raise _OddObjectError


_CHECKING = JSONDecoder(object_pairs_hook=_check)
_KEEPING = JSONDecoder(object_pairs_hook=_Pairs)


def _refuse_odd(value: list[Any], path: list[str | int]) -> None:
    """Raise ``InputError`` for the first odd object, outer ones before those in them."""
    if isinstance(value, _Pairs):
        if len(value) > MAX_KEYS:
            raise InputError(f"an object has {len(value)} keys", where=pointer(path), expected=f"at most {MAX_KEYS}")
        seen: set[str] = set()
        for key, _ in value:
            if key in seen:
                raise InputError("the key stands twice in its object", where=pointer([*path, key]), expected="it once")
            seen.add(key)
    members: Iterable[tuple[str | int, Any]] = value if isinstance(value, _Pairs) else enumerate(value)
    for at, member in members:
        if isinstance(member, list):
            _refuse_odd(member, [*path, at])
