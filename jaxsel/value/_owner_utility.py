"""Owners as players: the utility of all points of some owners."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._inputs.owners import check_owners
from jaxsel._runs.fingerprint import fingerprint, plain_repr

from ._failures import Failures


@dataclasses.dataclass(frozen=True, eq=False)
class OwnerUtility:
    """A utility with owners as players, made by `by_owner`.

    Attributes:
        utility: Of points.
        codes: Number of the owner of each point, `[width]` int32.
        index: The owners' labels, by number.
    """

    utility: Any
    codes: np.ndarray
    index: tuple[Any, ...]

    @property
    def n(self) -> int:
        """Number of owners."""
        return len(self.index)

    @property
    def width(self) -> int:
        """Number of points."""
        return len(self.codes)

    def __call__(self, masks: Any, key: Any = None) -> Any:
        """Return the utility of coalitions of owners `[B, n]`, `[B]`."""
        return self.utility(self._points(masks), key)

    @property
    def evaluate(self) -> Callable[..., Any] | None:
        """As the method of the utility, for coalitions of owners; None if it has none.

        Models of more owners start from those of fewer.
        """
        evaluate = getattr(self.utility, "evaluate", None)
        if evaluate is None:
            return None

        def of_owners(masks: Any, *rest: Any) -> Any:
            return evaluate(self._points(masks), *rest)

        return of_owners

    @property
    def cold(self) -> Callable[[int], Any] | None:
        """The method of the utility, or None."""
        return getattr(self.utility, "cold", None)

    @property
    def workers(self) -> int | None:
        """Number of models that the utility trains at once on the host, or None."""
        return getattr(self.utility, "workers", None)

    @property
    def failures(self) -> Failures | None:
        """Count of its learner's failures, where the utility has one, or None."""
        return getattr(self.utility, "failures", None)

    @functools.cached_property
    def about(self) -> dict[str, str]:
        """Identity of this utility, by name."""
        about = getattr(self.utility, "about", None)
        if not isinstance(about, Mapping):
            about = {"utility": plain_repr(self.utility)}
        return {**about, "owners": fingerprint(self.codes, list(self.index))}

    def _points(self, masks: Any) -> Any:
        if isinstance(masks, jax.Array):
            return jnp.take(masks, self.codes, axis=1)
        return np.asarray(masks)[:, self.codes]


def by_owner(utility: Any, owners: Any) -> Any:
    """Return a utility with owners as players, each with all of its points.

    A utility with a method `of_owners(codes, index)`, as made by `knn_utility`, returns
    from it a cheaper utility of owners.

    Args:
        utility: The worth of coalitions of points.
        owners: The owner of each point, `[n]`: labels of any kind, numbered by first
            appearance.

    Returns:
        A utility with `n`, the number of owners, and `index`, their labels.

    Raises:
        TypeError: If the utility is none, or a label cannot be compared with others.
        ValueError: If there is not one label for each point, or one is missing.
    """
    if not callable(utility) or not hasattr(utility, "n"):
        raise TypeError(
            "utility must be a ModelUtility, or a function wrapped by "
            f"as_utility(function, n), got {utility!r}"
        )
    codes, names = check_owners(owners, utility.n)  # pyright: ignore
    special = getattr(utility, "of_owners", None)
    if special is not None:
        return special(codes, names)
    return OwnerUtility(utility, codes, names)
