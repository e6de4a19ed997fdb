"""Reading ahead: one thread fetches the next items while the caller is at work."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

_T = TypeVar("_T")
_END: Any = object()


def read_ahead(items: Iterator[_T], ahead: int) -> Generator[_T, None, None]:
    """Yield the items, up to `ahead` of which a thread has fetched before.

    Errors of the iterator are raised here, in its place. The thread ends, and the
    iterator is closed, when all is read, on an error, and when this generator is
    closed: use `contextlib.closing` where a loop may be left early.

    Args:
        items: Items to fetch; used by that thread only.
        ahead: Most items that may wait; 0 fetches each when it is asked for.
    """
    if not ahead:
        yield from items
        return
    pool = ThreadPoolExecutor(1, thread_name_prefix="jaxsel-read")
    waiting: deque[Future[_T]] = deque()
    try:
        for _ in range(ahead):
            waiting.append(pool.submit(next, items, _END))
        while (item := waiting.popleft().result()) is not _END:
            waiting.append(pool.submit(next, items, _END))
            yield item
            del item  # the caller's alone, while this waits for the next
    finally:
        for future in waiting:
            future.cancel()
        pool.shutdown()
        if isinstance(items, Generator):
            items.close()
