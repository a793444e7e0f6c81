"""Every error that EaCO raises on purpose.

::

    EacoError                    the work failed                         (exit 1, HTTP 500)
    ├── InputError               the call or its input is wrong          (exit 2, HTTP 422)
    │   ├── DataError            a table or file breaks its schema
    │   └── UnknownNameError     a GPU, model, dataset ... nobody knows
    ├── MissingExtraError        an optional dependency is not installed (exit 2)
    ├── FetchError               a download failed or did not verify     (exit 1)
    ├── ConflictError            the state has moved on since            (exit 1, HTTP 409)
    └── NotReadyError            no model is loaded or registered yet    (exit 1, HTTP 503)

A message is one line: what was wrong, where, what was expected. The core knows no HTTP: faces map these classes.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class EacoError(Exception):
    """The work failed. Base of every error raised on purpose."""


class InputError(EacoError):
    """The call or its input is wrong.

    Args:
        what: what was wrong, in a few words.
        where: the place: ``file:row:column``, a JSON pointer (``/jobs/0/batch_size``) or an option name.
        expected: what would have been right.
    """

    def __init__(self, what: str, *, where: str = "", expected: str = "") -> None:
        self.what, self.where, self.expected = what, where, expected
        line = f"{where}: {what}" if where else what
        super().__init__(f"{line}; expected {expected}" if expected else line)

    def at(self, where: str) -> InputError:
        """The same error at a more precise place (class kept)."""
        moved = type(self).__new__(type(self))
        InputError.__init__(moved, self.what, where=where, expected=self.expected)
        return moved


class DataError(InputError):
    """A table or file breaks its schema."""


class UnknownNameError(InputError):
    """A name that nobody knows; the message names the nearest known ones."""

    def __init__(self, kind: str, name: str, known: Iterable[str], *, where: str = "") -> None:
        choices = sorted(known)
        near = get_close_matches(name.lower(), choices, n=3, cutoff=0.5)
        listed = near or choices[:20]
        expected = ("perhaps " if near else "one of ") + ", ".join(listed)
        if not near and len(choices) > len(listed):
            expected += f" ... ({len(choices)} in all)"
        super().__init__(f"unknown {kind} {name!r}", where=where, expected=expected)


class MissingExtraError(EacoError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed; install it with: pip install 'eaco[{extra}]'")


class FetchError(EacoError):
    """A download failed or did not verify."""


class NotReadyError(EacoError):
    """No model is loaded or registered yet."""


class ConflictError(EacoError):
    """What was decided no longer applies: the state has moved on since."""
