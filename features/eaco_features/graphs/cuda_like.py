"""Lets code written for a GPU run on the CPU: devices, autocast, gradient scaling, compilation, optimizers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode

_GPU = ("cuda", "mps", "xpu", "hip")


def _on_gpu(device: Any) -> bool:
    if isinstance(device, torch.device):
        return device.type in _GPU
    return isinstance(device, str) and device.partition(":")[0] in _GPU


class OnCpu(TorchFunctionMode):
    """Sends every request for a GPU to the CPU: ``.cuda()``, ``.to("cuda:1")``, ``device="cuda"``, pinned memory."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            return args[0]
        if func is torch.Tensor.__format__ and args[0].dim() == 0:
            return format(args[0].item(), args[1])  # a fake tensor does not format itself
        if func is torch.Tensor.to:
            args = (args[0], *("cpu" if _on_gpu(a) or type(a) is int else a for a in args[1:]))
        if _on_gpu(kwargs.get("device")) or type(kwargs.get("device")) is int:
            kwargs["device"] = "cpu"
        kwargs.pop("pin_memory", None)
        return func(*args, **kwargs)


def _autocast_on_cpu() -> Callable[..., None]:
    start = torch.amp.autocast_mode.autocast.__init__

    def begin(self: Any, device_type: str, dtype: Any = None, *args: Any, **kwargs: Any) -> None:
        if device_type in _GPU:
            device_type, dtype = "cpu", dtype or torch.float16  # CUDA's default; the CPU's is bfloat16
        start(self, device_type, dtype, *args, **kwargs)

    return begin


def _scaler_on_cpu() -> Callable[..., None]:
    start = torch.amp.GradScaler.__init__

    def begin(self: Any, device: str = "cuda", *args: Any, **kwargs: Any) -> None:
        start(self, "cpu" if device in _GPU else device, *args, **kwargs)

    return begin


def _step_always(_self: Any, optimizer: Any, _state: Any, *args: Any, **kwargs: Any) -> Any:
    """A scaled step without the check for infinite gradients, whose outcome is data."""
    return optimizer.step(*args, **kwargs)


def _as_is(model: Any = None, **_: Any) -> Any:
    return model if model is not None else (lambda function: function)


def _nothing() -> Callable[..., None]:
    """A function that does nothing, a new one each time: torch tells functions apart by identity."""
    return lambda *_, **__: None


def _take_over(old: Any, new: Any) -> None:
    """Give a parameter its converted data; fake tensors cannot be swapped, as torch itself holds weak references."""
    if old is not new:
        old.data = new.data


def _dense_only(tensors: Any, device: Any) -> bool:  # noqa: ARG001 - torch's own signature
    return all(t is None or not t.is_sparse for t in tensors)


class _Marker:
    """Stands for a CUDA event or stream: all work is done at once, in a millisecond."""

    record = record_event = synchronize = wait = wait_event = wait_stream = lambda *_: None

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def query(self) -> bool:
        return True

    def elapsed_time(self, _end: Any) -> float:
        return 1.0


def _without_gradients(mode: Any) -> None:
    """Enter ``inference_mode`` as ``no_grad``: under it composites would come unsplit, without what replaces them."""
    mode._inference_mode_context = torch.no_grad() if mode.mode else nullcontext()
    mode._inference_mode_context.__enter__()


@contextmanager
def gpu_code_on_cpu() -> Iterator[None]:
    """While entered, GPU code runs on the CPU, ``torch.compile`` compiles nothing and nothing is synchronised."""
    with ExitStack() as stack:
        for owner, name, stand_in in (
            (torch.amp.autocast_mode.autocast, "__init__", _autocast_on_cpu()),
            (torch.amp.GradScaler, "__init__", _scaler_on_cpu()),
            (torch.amp.GradScaler, "_maybe_opt_step", _step_always),
            (torch, "compile", _as_is),
            (torch.utils, "swap_tensors", _take_over),
            (torch, "set_default_device", _nothing()),
            (torch.nn.utils.clip_grad, "_has_foreach_support", _dense_only),
            (torch.autograd.grad_mode.inference_mode, "__enter__", _without_gradients),
            (torch.autograd.graph, "disable_saved_tensors_hooks", nullcontext),
            (torch.cuda, "Event", _Marker),
            (torch.cuda, "Stream", _Marker),
            (torch.cuda, "current_stream", _Marker),
            (torch.cuda, "stream", nullcontext),
            (torch.cuda, "synchronize", _nothing()),
            (torch.cuda, "set_device", _nothing()),
            (torch.cuda, "reset_peak_memory_stats", _nothing()),
        ):
            stack.enter_context(patch.object(owner, name, stand_in))
        stack.enter_context(OnCpu())
        yield


@contextmanager
def watched_optimizers(seen: Callable[[Any, bool], None]) -> Iterator[None]:
    """While entered, every optimizer works on lists of tensors (``foreach``), as it does by default on CUDA.

    ``seen(optimizer, True)`` is called before each step of any optimizer and ``seen(optimizer, False)`` after it.
    """

    def before(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        for group in optimizer.param_groups:
            if group.get("foreach", False) is None and not group.get("fused"):
                group["foreach"] = True
        seen(optimizer, True)

    def after(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        seen(optimizer, False)

    handles = register_optimizer_step_pre_hook(before), register_optimizer_step_post_hook(after)
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
