"""Which GPUs the environment lets a program see, by UUID. Pure: cards in, keys out.

A CUDA index is not an NVML index: CUDA counts only what ``CUDA_VISIBLE_DEVICES`` lets through, the fastest first
unless ``CUDA_DEVICE_ORDER=PCI_BUS_ID`` (CUDA programming guide, environment variables). Where an index could mean two
cards it is declined, never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eaco_datasets.errors import InputError

VISIBLE, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
BY_BUS = "PCI_BUS_ID"


@dataclass(frozen=True)
class Slice:
    """A MIG slice: its UUID (``MIG-...``) and the instances that older drivers name it by."""

    uuid: str
    gpu_instance: int
    compute_instance: int


@dataclass(frozen=True)
class Card:
    """A whole GPU with its UUID (``GPU-...``); in MIG mode only its slices can work."""

    uuid: str
    name: str
    mig: bool = False
    slices: tuple[Slice, ...] = ()

    @property
    def usable(self) -> tuple[str, ...]:
        """Keys of what can work: the card itself, or its slices."""
        return tuple(s.uuid for s in self.slices) if self.mig else (self.uuid,)


def visible_keys(cards: Sequence[Card], environment: Mapping[str, str], *, lost: int = 0) -> tuple[str, ...]:
    """UUIDs of the GPUs and MIG slices that CUDA would show, in CUDA's order.

    Args:
        cards: in the order of their PCI bus addresses.
        environment: holds ``CUDA_VISIBLE_DEVICES`` (unset: all; empty: none) and ``CUDA_DEVICE_ORDER``.
        lost: cards that no longer answer; indices could count them or not.

    Raises:
        InputError: the variable names no card here, or does so ambiguously.
    """
    listed = environment.get(VISIBLE)
    if listed is None:
        return tuple(key for card in cards for key in card.usable)
    keys: list[str] = []
    for token in (part.strip() for part in listed.split(",")):
        if not token or token.startswith("-"):
            break  # CUDA shows what stands before an invalid entry, such as -1
        key = _by_index(int(token), cards, environment, lost) if token.isdecimal() else key_of(token, cards)
        if key is None:
            break
        if key in keys:
            raise _declined(f"{token!r} names {key} a second time", "each GPU once")
        keys.append(key)
    return tuple(keys)


def key_of(name: str, cards: Sequence[Card], *, where: str = VISIBLE) -> str:
    """The full UUID of a GPU or MIG slice named by its UUID, the start of it, or ``MIG-GPU-<uuid>/<gi>/<ci>``.

    Raises:
        InputError: none here has that name, several do, or the GPU is in MIG mode and cannot work as a whole.
    """
    usable = [key for card in cards for key in card.usable]
    if name.upper().startswith("MIG-GPU-"):
        found = [s.uuid for card in cards for s in card.slices if _old_name(card, s) == name.upper()]
    elif name.upper().startswith(("GPU-", "MIG-")):
        every = {card.uuid for card in cards}.union(usable)
        found = sorted(key for key in every if key.upper().startswith(name.upper()))
    else:
        raise _declined(f"{name!r} names no GPU", "an index, GPU-<uuid> or MIG-<uuid>", where)
    if len(found) != 1:
        what = f"{name!r} fits {len(found)} GPUs" if found else f"no GPU here is {name!r}"
        raise _declined(what, "one of " + ", ".join(usable) if usable else "a GPU of this machine", where)
    if found[0] not in usable:
        slices = next(card.usable for card in cards if card.uuid == found[0])
        instead = "one of its slices: " + ", ".join(slices) if slices else "a GPU with a MIG slice, or without MIG"
        raise _declined(f"{found[0]} is in MIG mode, where the whole GPU cannot work", instead, where)
    return found[0]


def _by_index(index: int, cards: Sequence[Card], environment: Mapping[str, str], lost: int) -> str | None:
    """The card of a CUDA index, None past the last; declined where cards, order or MIG leave it open."""
    if any(card.mig for card in cards):
        raise _declined(f"index {index} is ambiguous while a GPU is in MIG mode", "UUIDs, as nvidia-smi -L lists them")
    if lost:
        raise _declined(f"index {index} is ambiguous while {lost} GPU(s) do not answer", "UUIDs")
    names = {card.name for card in cards}
    if len(names) > 1 and environment.get(ORDER) != BY_BUS:
        raise _declined(
            f"index {index} is ambiguous: CUDA puts the fastest of {', '.join(sorted(names))} first",
            f"UUIDs, or {ORDER}={BY_BUS}",
        )
    return cards[index].uuid if index < len(cards) else None


def _old_name(card: Card, part: Slice) -> str:
    return f"MIG-{card.uuid}/{part.gpu_instance}/{part.compute_instance}".upper()


def _declined(what: str, expected: str, where: str = VISIBLE) -> InputError:
    return InputError(what, where=where, expected=expected)
