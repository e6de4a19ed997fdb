"""Checkpoints of a run in a folder, written by orbax, for that run only.

Each carries a sha256 of all that it holds: files of arrays have no checksum of their
own, and a flipped bit would load as other numbers.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from .fingerprint import fingerprint, plain_repr

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")
_UNFINISHED = ".orbax-checkpoint-tmp"  # in the name of a folder that is being saved


class Checkpoints:
    """The newest state of a run, replaced in one step at each save.

    Args:
        folder: Its folder; made if it isn't there.
        run: Identifier of this run, such as its `run_digest`.
    """

    def __init__(self, folder: str | os.PathLike[str], run: str):
        self.folder, self.run = Path(folder).absolute(), run

    def load(self, like: _T) -> tuple[int, _T]:
        """Return the step of the newest state, and the state; 0 and `like` if none.

        Args:
            like: A state: a pytree of arrays of the same shapes and types.

        Raises:
            PermissionError: If the folder can't be read.
            ValueError: If the folder holds another run, or a checkpoint that is damaged
                or has no sha256.
        """
        leaves, structure = jax.tree.flatten(like)
        step, arrays, _ = self._read(_named(leaves))
        if not step:
            return 0, like
        # NumPy arrays are restored as NumPy arrays.
        order = [arrays[name] for name in _named(leaves)]
        kept = [
            np.array(new) if isinstance(old, (np.ndarray, np.generic)) else new
            for old, new in zip(leaves, order, strict=True)
        ]
        return step, jax.tree.unflatten(structure, kept)

    def load_arrays(self) -> dict[str, np.ndarray] | None:
        """Return the arrays that `save` was given by name, or None if there are none.

        Raises:
            PermissionError: If the folder can't be read.
            ValueError: If the folder holds another run, or a checkpoint that is damaged
                or has no sha256.
        """
        step, leaves, names = self._read(None)
        if not step:
            return None
        arrays = (np.asarray(leaves[name]) for name in sorted(leaves))
        return dict(zip(names, arrays, strict=True))

    def save(self, step: int, state: Any) -> None:
        """Save the state of a step, from 1 on; the one before it is removed then.

        Args:
            step: Its number.
            state: A pytree of arrays. If it maps names to arrays, `load_arrays` reads
                it without knowing their shapes.

        Raises:
            OSError: If it can't be written, as on a full disk: the state before it is
                kept.
        """
        paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(state)]
        names = [str(path[0].key) for path in paths] if _is_flat(state) else []
        leaves = _named(jax.tree.leaves(state))
        about = {
            "run": self.run,
            "names": names,
            "sha256": self._digest(step, names, leaves),
        }
        with self._naming_disk(), self._open() as folder:
            folder.save(step, leaves, custom_metadata=about)
        _LOG.debug("checkpoint %s: saved step %d", self.folder, step)

    def _read(self, like: Any) -> tuple[int, dict[str, Any], list[str]]:
        """Return the newest step, 0 if there is none, its leaves, and their names."""
        # Orbax and tensorstore raise errors of many kinds for damaged files.
        with self._naming_damage(), self._open() as folder:
            if folder.latest is None:
                return 0, {}, []
            step = folder.latest.step
            about = folder.metadata(step).custom_metadata
            same_run = isinstance(about, dict) and about.get("run") == self.run
            leaves = folder.load(step, like) if same_run and "sha256" in about else {}
        if not same_run:
            raise ValueError(
                f"checkpoint {self.folder} holds a run with other data, parameters "
                "or settings, or of another model: choose another folder"
            )
        if "sha256" not in about:
            raise ValueError(
                f"checkpoint {self.folder} has no sha256, as of earlier versions: "
                "delete it to start again, or choose another folder"
            )
        with self._naming_damage():
            names = [str(name) for name in about["names"]]
            if about["sha256"] != self._digest(step, names, leaves):
                raise ValueError("its sha256 differs")
        _LOG.info("checkpoint %s: going on from step %d", self.folder, step)
        return step, leaves, names

    def _digest(self, step: int, names: list[str], leaves: dict[str, Any]) -> str:
        about = {"run": self.run, "step": step, "names": names}
        return run_digest(about, {name: _whole(leaves[name]) for name in leaves})

    @contextlib.contextmanager
    def _naming_damage(self) -> Iterator[None]:
        try:
            yield
        except PermissionError:
            raise
        except Exception as error:
            why = (str(error).splitlines() or [type(error).__name__])[0][:200]
            raise ValueError(
                f"checkpoint {self.folder} is damaged, or was changed: {why}. Delete "
                "it to start again, or choose another folder"
            ) from error

    @contextlib.contextmanager
    def _naming_disk(self) -> Iterator[None]:
        """Raise an OSError where tensorstore reports one as a ValueError."""
        try:
            yield
        except ValueError as error:
            code = re.search(r"os_error_code='(\d+)'", str(error))
            if code is None:
                raise
            self._remove_unfinished()
            number = int(code[1])
            raise OSError(number, os.strerror(number), str(self.folder)) from error

    def _remove_unfinished(self) -> None:
        if jax.process_index() == 0:
            for unfinished in self.folder.glob(f"*{_UNFINISHED}*"):
                shutil.rmtree(unfinished)

    def _open(self) -> Any:
        from orbax.checkpoint import v1 as ocp

        # Weights and rows are secrets: orbax writes files that others may read.
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Orbax removes what a killed save has left in the background: of two folders
        # that are opened one after the other, one then trips over the other.
        self._remove_unfinished()
        newest: Any = ocp.training.preservation_policies.LatestN(1)
        return ocp.training.Checkpointer(
            os.fspath(self.folder), preservation_policy=newest
        )


def _whole(leaf: Any) -> Any:
    """Return a leaf in a form that hashes alike in every process, saved or loaded.

    Shards are gathered, keys become their words, and integers 64 bits wide: JAX may
    read them in 32.
    """
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    if isinstance(leaf, jax.Array) and not (
        leaf.is_fully_addressable or leaf.is_fully_replicated
    ):
        from jax.experimental import multihost_utils

        leaf = multihost_utils.process_allgather(leaf, tiled=True)
    wide = {"i": np.int64, "u": np.uint64}.get(leaf.dtype.kind)
    return leaf if wide is None else np.asarray(leaf).astype(wide)


def _is_flat(state: Any) -> bool:
    return isinstance(state, dict) and jax.tree_util.all_leaves(state.values())


def _named(leaves: list[Any]) -> dict[str, Any]:
    """Name leaves by number, so that files do not depend on the pytree's classes."""
    return {
        f"{i:04d}": leaf if isinstance(leaf, jax.Array) else np.asarray(leaf)
        for i, leaf in enumerate(leaves)
    }


def run_digest(settings: Mapping[str, Any], *trees: Any) -> str:
    """Return a sha256 of settings, as JSON has them, and of pytrees of arrays."""
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for path, leaf in jax.tree_util.tree_leaves_with_path(trees):
        array = np.ascontiguousarray(leaf)
        about = f"{jax.tree_util.keystr(path)} {array.dtype} {array.shape}"
        digest.update(about.encode())
        digest.update(array.view(np.uint8).data)
    return digest.hexdigest()


def program_digest(function: Callable[..., Any], *args: Any) -> str:
    """Digest the code of a function, and its jaxpr at arguments of these shapes.

    Both are needed: constants of compiled functions show in closures alone, contents of
    lists and globals in the jaxpr.
    """
    forms = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), args
    )
    program = jax.make_jaxpr(function)(*forms)
    return fingerprint(function, plain_repr(program.jaxpr), [*program.consts])
