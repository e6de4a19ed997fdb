"""Progress bars: off by default, on standard error."""

from __future__ import annotations

import contextlib
import importlib.util
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import jax

_T = TypeVar("_T")

_AFTER = 1.0  # seconds of compiling that go unmentioned
_LOOK = 0.2  # seconds between two looks

# JAX reports the end of each of these events; compilation starts when lowering ends.
_LOWERED = "/jax/core/compile/jaxpr_to_mlir_module_duration"
_COMPILED = "/jax/core/compile/backend_compile_duration"


def bar_class() -> Any:
    """Return tqdm's class of bars for a notebook or a terminal.

    Notebooks without ipywidgets get a line of text. `tqdm.auto` warns of that, and
    tests turn warnings into errors.
    """
    if importlib.util.find_spec("ipywidgets") is None:
        from tqdm import tqdm
    else:
        from tqdm.auto import tqdm
    return tqdm


def track(
    items: Iterable[_T], *, progress: bool, label: str, total: int | None = None
) -> Iterator[_T]:
    """Iterate over the items, with a bar if `progress` is on.

    If the first step, in the iterator or in the caller's loop, compiles for more than a
    second, the bar says so until it is done.
    """
    return _with_bar(items, label, total) if progress else iter(items)


def _with_bar(items: Iterable[_T], label: str, total: int | None) -> Iterator[_T]:
    with (
        bar_class()(items, desc=label, total=total, leave=False) as bar,
        first_step(bar) as done,
    ):
        for item in bar:
            yield item
            done()


@contextlib.contextmanager
def first_step(bar: Any) -> Iterator[Callable[[], None]]:
    """Show "compiling" on a tqdm bar until the first step is done.

    Yields:
        A function to call after each step. Compilation in other processes goes
        unnoticed.
    """
    spent, begun = [0.0], dict[int, float]()
    ended = threading.Event()

    def heard(event: str, duration_secs: float, **kwargs: str | int) -> None:
        del kwargs
        if event == _LOWERED:
            begun[threading.get_ident()] = time.monotonic()
        elif event == _COMPILED:
            begun.pop(threading.get_ident(), None)
            spent[0] += duration_secs

    def watch() -> None:
        while not ended.wait(_LOOK):
            now = time.monotonic()
            if spent[0] + sum(now - since for since in [*begun.values()]) > _AFTER:
                bar.set_postfix_str("compiling ...")
                return

    def done() -> None:
        if ended.is_set():
            return
        ended.set()
        with contextlib.suppress(AssertionError, ValueError):  # somebody cleared them
            jax.monitoring.unregister_event_duration_listener(heard)
        watcher.join()
        bar.set_postfix_str("", refresh=False)

    watcher = threading.Thread(target=watch, daemon=True)
    jax.monitoring.register_event_duration_secs_listener(heard)
    watcher.start()
    try:
        yield done
    finally:
        done()
