"""Progress bars: off by default, on standard error."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

_T = TypeVar("_T")


def track(
    items: Iterable[_T], *, progress: bool, label: str, total: int | None = None
) -> Iterator[_T]:
    """Yield the items, with a bar while `progress` is on."""
    if not progress:
        yield from items
        return
    from tqdm.auto import tqdm

    yield from tqdm(items, desc=label, total=total, leave=False)
