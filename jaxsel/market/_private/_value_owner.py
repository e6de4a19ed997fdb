"""An owner's part in a valuation across owners."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from jaxsel._files.staged import staged
from jaxsel._files.wire import MAX_BYTES, check_arrays, check_fields, pack, reading
from jaxsel._inputs.checks import check_choice, check_features
from jaxsel._inputs.frames import in_order, names_of
from jaxsel._results.types import Reduce, Values
from jaxsel.filter import Counted, Keys, Revealed, SecureClient, Shares
from jaxsel.market._request import FORMAT
from jaxsel.market._schema import as_labels
from jaxsel.value import threshold_counts, threshold_knn_shapley

from ._limits import MAX_EPSILON, MAX_VAL, PrivacyBudget, check_limits
from ._privacy import discrete_gaussian
from ._spent import Spent
from ._valuation import FEWEST, CountSums, Survivors, Valuation, names_in

_KIND = "state of an owner"
_ARRAYS = ("counts", "sent", "data", "client")


class ValueOwner:
    """An owner's part: count, mask, and value its own points by the sums of all.

    `keys`, `share`, `masked` and `reveal` are called in this order, once each; then
    `values`. Between two of them, `save` and `load` go on in another process.

    Args:
        valuation: The trainer's question.
        x: The owner's points, `[n, d]`. Columns of a data frame are brought into the
            order of the valuation's.
        y: Their labels, `[n]`, of its classes.
        owner: The owner's name.
        min_owners: Minimum number of owners left for it to take part: with fewer than
            three, the others' counts are no secret.
        max_epsilon: The largest epsilon that it accepts. None accepts any, and exact
            sums, which have none.
        max_delta: The largest delta of noisy sums that it accepts. If None, the smaller
            of 1e-5 and n^-1.1.
        min_colluding: Number of colluding owners that the noise must suffice against.
        max_val: The largest number of validation points that it counts for.
        budget: Record of all questions that it took part in, by which their epsilons
            and deltas stay within a limit together; None to keep none.

    Raises:
        OSError: If the budget can't be read or written.
        TypeError: If points or labels are of another kind than the valuation's.
        ValueError: If they are of another form, too many, or have labels of no class;
            if it was not asked; or if the valuation goes beyond a limit: the message
            has both numbers.
    """

    def __repr__(self) -> str:
        return f"ValueOwner({self.owner!r})"

    def __init__(
        self,
        valuation: Valuation,
        x: npt.ArrayLike,
        y: npt.ArrayLike,
        *,
        owner: str,
        min_owners: int = FEWEST,
        max_epsilon: float | None = MAX_EPSILON,
        max_delta: float | None = None,
        min_colluding: int = 1,
        max_val: int = MAX_VAL,
        budget: PrivacyBudget | None = None,
    ):
        if owner not in valuation.owners:
            raise ValueError(
                f"owner must be one of those asked, {', '.join(valuation.owners)}, got "
                f"{owner!r}"
            )
        points, codes = _own_data(valuation, x, y)
        check_limits(
            valuation,
            len(points),
            min_owners=min_owners,
            min_colluding=min_colluding,
            max_epsilon=max_epsilon,
            max_delta=max_delta,
            max_val=max_val,
        )
        if len(points) > valuation.max_points:
            raise ValueError(
                f"x must have at most {valuation.max_points} points, the valuation's "
                f"limit, got {len(points)}"
            )
        if budget is not None:
            budget.spend(valuation)
        self.valuation, self.owner = valuation, owner
        self._data = _digest(points, codes)
        self._counts = threshold_counts(
            points,
            codes,
            valuation.x,
            _codes(valuation),
            radius=float(valuation.radius[0]),
            metric=_metric(valuation),
        )
        self._sent = self._counts
        if valuation.variance:
            noise = discrete_gaussian(valuation.variance, self._counts.size)
            self._sent = self._counts + noise.reshape(self._counts.shape)
        counted = Counted(
            task=valuation.task,
            round=1,
            client=owner,
            # Modulo 2^32, as the masks.
            counts=self._sent.ravel().astype(np.uint32),
        )
        self._client: SecureClient | None = SecureClient(counted, valuation.needed)
        self._told: tuple[str, ...] | None = None
        self._number, self._saved = secrets.token_hex(16), 0

    def keys(self) -> Keys:
        """Return its public keys, for all other owners."""
        return self._secure().keys()

    def share(self, keys: Iterable[Keys]) -> Shares:
        """Return shares of its secrets, sealed for each of the others.

        Args:
            keys: Keys of all owners, its own among them.

        Raises:
            ValueError: As `SecureClient.share`, or if some are of nobody who was asked.
        """
        received = [*keys]
        strangers = {message.client for message in received} - set(
            self.valuation.owners
        )
        if strangers:
            raise ValueError(
                f"keys must be of owners that were asked, got {sorted(strangers)}"
            )
        return self._secure().share(received)

    def masked(self, shares: Iterable[Shares]) -> Counted:
        """Return its counts, masked.

        Args:
            shares: Shares of all owners that sent them, its own among them.

        Raises:
            ValueError: As `SecureClient.masked`.
        """
        return self._secure().masked(shares)

    def reveal(self, survivors: Survivors) -> Revealed:
        """Return the shares that unmask the sum, and forget the owner's secrets.

        Args:
            survivors: Owners of the masked counts received.

        Raises:
            ValueError: As `SecureClient.reveal`, or if it is of another valuation.
        """
        survivors.check(self.valuation)
        client = self._secure()
        revealed = client.reveal(survivors.owners)
        self._client, self._told = None, survivors.owners
        return revealed

    def values(
        self,
        sums: CountSums,
        x: npt.ArrayLike,
        y: npt.ArrayLike,
        *,
        reduce: Reduce = "mean",
        chunk_size: int | None = None,
        mesh: jax.sharding.Mesh | None = None,
        axis: str | None = None,
        progress: bool = False,
    ) -> Values:
        """Value the owner's points among the points of all owners in the sums.

        The counts of the others are the sums less the counts sent. Where noise makes
        them negative, they are 0.

        Args:
            sums: The sums sent to all owners.
            x: The points that it counted.
            y: Their labels.
            reduce: "mean", "max" or None, as for all KNN values.
            chunk_size: Validation points at a time, or None to choose.
            mesh: Devices to split validation points over, or None.
            axis: Name of the axis of the mesh, or None.
            progress: Whether to show a bar.

        Returns:
            The `threshold_knn_shapley` of its points, `[n]`.

        Raises:
            ValueError: If the sums are of another valuation, of other owners than it
                was told, or impossible, as are exact ones below its own counts; or if
                the points are not those that it counted.
        """
        valuation = self.valuation
        sums.check(valuation)
        if self._told is not None and set(sums.owners) != set(self._told):
            raise ValueError(
                f"sums must be of {sorted(self._told)}, the owners that it was told "
                f"are left, got {sorted(sums.owners)}"
            )
        points, codes = _own_data(valuation, x, y)
        if _digest(points, codes) != self._data:
            raise ValueError("x and y must be what was counted, got something else")
        is_counted = self.owner in sums.owners
        others = sums.sums - self._sent if is_counted else sums.sums
        most = (len(sums.owners) - is_counted) * valuation.max_points
        if not valuation.variance and (others.min() < 0 or others.max() > most):
            raise ValueError(
                "sums must be those of counts that are possible, but what they leave "
                f"to the other owners is {others.min()} to {others.max()}"
            )
        return threshold_knn_shapley(
            points,
            codes,
            valuation.x,
            _codes(valuation),
            radius=float(valuation.radius[0]),
            n_classes=len(valuation.schema.classes or ()),
            counts=self._counts + np.clip(others, 0, most),
            metric=_metric(valuation),
            reduce=reduce,
            chunk_size=chunk_size,
            mesh=mesh,
            axis=axis,
            progress=progress,
        )

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the whole state to a file that only its user can read.

        Replace the file before you send what a method returned: who goes on twice from
        one state may open both of its masks. A hidden file beside it notes the step
        first, so that an older copy is refused.

        Args:
            path: The file; `.npz` is appended if it does not end so.

        Raises:
            ValueError: If another process has gone on from the same state.
        """
        path = Path(path)
        if path.suffix != ".npz":
            path = path.with_name(path.name + ".npz")
        fields = {
            "task": self.valuation.task,
            "owner": self.owner,
            "told": None if self._told is None else [*self._told],
            "number": self._number,
        }
        client = None
        if self._client is not None:
            client = np.frombuffer(self._client.to_bytes(), np.uint8)
        arrays = {
            "counts": self._counts,
            "sent": self._sent,
            "data": np.frombuffer(self._data, np.uint8),
            "client": client,
        }
        content = pack(FORMAT, _KIND, fields, arrays)
        Spent(path.parent).note(self._number, self._saved, self._stage)
        self._saved = self._stage
        with staged([path]) as [part]:
            private = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(private, "wb") as file:
                file.write(content)
        return path

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        valuation: Valuation,
        *,
        max_bytes: int = MAX_BYTES,
    ) -> ValueOwner:
        """Read the state of an owner from a file that `save` wrote.

        Args:
            path: The file.
            valuation: The valuation that it must belong to.
            max_bytes: Largest file to read.

        Raises:
            FileNotFoundError: If there is no such file.
            TypeError: If `max_bytes` is no whole number.
            ValueError: If it holds anything else, is damaged or of another valuation;
                if it is a copy from before a step that was taken.
        """
        with reading(FORMAT, path, _KIND, _ARRAYS, max_bytes) as (fields, arrays):
            check_fields("fields", fields, {"task", "owner", "told", "number"})
            kept = [name for name in arrays if name != "client"]
            check_arrays({name: arrays[name] for name in kept}, _ARRAYS[:-1])
            if fields["task"] != valuation.task:
                raise ValueError("it is of another valuation, or that was changed")
            names = names_in(fields["told"] or [], "told")
            for name in (fields["owner"], *names):
                check_choice("owner", name, valuation.owners)
            for name in ("counts", "sent"):
                if arrays[name].shape != (len(valuation), 2):
                    raise ValueError(f"{name} must have shape [{len(valuation)}, 2]")
            owner = cls.__new__(cls)
            owner.valuation, owner.owner = valuation, fields["owner"]
            owner._told = None if fields["told"] is None else names
            owner._counts, owner._sent = arrays["counts"], arrays["sent"]
            owner._data = arrays["data"].tobytes()
            owner._client = None
            if "client" in arrays:
                owner._client = SecureClient.from_bytes(arrays["client"].tobytes())
            owner._number, owner._saved = str(fields["number"]), owner._stage
            Spent(Path(path).parent).check(owner._number, owner._stage)
            return owner

    @property
    def _stage(self) -> int:
        """Number of `keys`, `share`, `masked` and `reveal` that were called."""
        return 4 if self._client is None else self._client.stage

    def _secure(self) -> SecureClient:
        if self._client is None:
            raise ValueError(
                "keys, share, masked and reveal must be called in this order, once each"
            )
        return self._client


def _own_data(valuation: Valuation, x: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return points of the valuation's form, and their labels' places among classes."""
    schema = valuation.schema
    points = np.asarray(check_features("x", x))
    points = in_order("x", points, names_of(x), schema.columns, of="the valuation")
    if points.dtype != valuation.x.dtype:
        cast = points.astype(valuation.x.dtype)
        if not np.array_equal(cast, points):
            raise TypeError(
                f"x must hold {valuation.x.dtype} as the valuation does, or numbers "
                f"that it can hold exactly, got {points.dtype}: convert x first"
            )
        points = cast
    schema.check_samples("x", points)
    labels = as_labels("y", y)
    schema.check_labels("y", labels)
    if len(labels) != len(points):
        raise ValueError(
            f"x and y must have the same length, got {len(points)} and {len(labels)}"
        )
    return points, schema.encode("y", labels)


def _codes(valuation: Valuation) -> np.ndarray:
    return valuation.schema.encode("y", valuation.y)


def _metric(valuation: Valuation) -> Any:
    return valuation.metric


def _digest(points: np.ndarray, codes: np.ndarray) -> bytes:
    digest = hashlib.sha256(f"{points.dtype} {points.shape}".encode())
    digest.update(np.ascontiguousarray(points).tobytes())
    digest.update(codes.tobytes())
    return digest.digest()
