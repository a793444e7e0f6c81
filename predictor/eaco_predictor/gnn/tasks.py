"""What the network learns at once. No torch here."""

from __future__ import annotations

SET_TASKS: tuple[str, ...] = ("relative_speed",)
"""Tasks of a job among others."""

SOLO_TASKS: tuple[str, ...] = ("epoch_s", "gpu_util_pct", "mem_util_pct", "mem_mib", "gpu_power_w")
"""Tasks of a job alone."""

CONSUMPTION_TASKS: tuple[str, ...] = tuple(
    f"{quantity}_{part}"
    for quantity in ("gpu_util", "mem_util", "net_rx", "net_tx")
    for part in ("burst_s", "idle_s", "peak")
)
"""Driple's twelve (Yang et al., POMACS 2022): of GPU and memory utilisation and of network receive and transmit, the
lengths of bursts and of idle times and the height of the peak. No public table states the network's or any burst; their
outputs are masked out of the loss until a measured table does, and are then no more than columns of targets."""

TASKS: tuple[str, ...] = SET_TASKS + SOLO_TASKS + CONSUMPTION_TASKS
"""Outputs of the network, in order."""
