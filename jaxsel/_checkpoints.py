"""Checkpoints of a run in a folder, written by orbax, for that run only."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np

from ._fingerprint import fingerprint, plain_repr

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")
_UNFINISHED = ".orbax-checkpoint-tmp"  # in the name of a folder that is being saved


class Checkpoints:
    """The newest state of a run, replaced in one step at each save.

    Args:
        folder: Where it lies; made if it isn't there.
        run: Identifies this run, such as its `run_digest`.
    """

    def __init__(self, folder: str | os.PathLike[str], run: str):
        self.folder, self.run = Path(folder).absolute(), run

    def load(self, like: _T) -> tuple[int, _T]:
        """Return the step of the newest state, and the state; 0 and `like` if none.

        Args:
            like: A state: a pytree of arrays of the same shapes and types.

        Raises:
            ValueError: If the folder holds another run.
        """
        leaves, structure = jax.tree.flatten(like)
        step, found, _ = self._read(_named(leaves))
        if not step:
            return 0, like
        # Arrays of NumPy stay such.
        order = [found[name] for name in _named(leaves)]
        kept = [
            np.array(new) if isinstance(old, (np.ndarray, np.generic)) else new
            for old, new in zip(leaves, order, strict=True)
        ]
        return step, jax.tree.unflatten(structure, kept)

    def load_arrays(self) -> dict[str, np.ndarray] | None:
        """Return the arrays that `save` was given by name, or None if there are none.

        Raises:
            ValueError: If the folder holds another run.
        """
        step, found, names = self._read(None)
        if not step:
            return None
        arrays = (np.asarray(found[name]) for name in sorted(found))
        return dict(zip(names, arrays, strict=True))

    def save(self, step: int, state: Any) -> None:
        """Save the state of a step, from 1 on; the one before it is removed then.

        Args:
            step: Its number.
            state: A pytree of arrays. If it maps names to arrays, `load_arrays` reads
                it without knowing their shapes.
        """
        paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(state)]
        names = [str(path[0].key) for path in paths] if _is_flat(state) else []
        with self._open() as folder:
            folder.save(
                step,
                _named(jax.tree.leaves(state)),
                custom_metadata={"run": self.run, "names": names},
            )
        _LOG.debug("checkpoint %s: saved step %d", self.folder, step)

    def _read(self, like: Any) -> tuple[int, dict[str, Any], list[str]]:
        """Return the newest step, 0 if there is none, its leaves, and their names."""
        with self._open() as folder:
            if folder.latest is None:
                return 0, {}, []
            step = folder.latest.step
            about = folder.metadata(step).custom_metadata
            if not isinstance(about, dict) or about.get("run") != self.run:
                raise ValueError(
                    f"checkpoint {self.folder} holds a run with other data, parameters "
                    "or settings, or of another model: choose another folder"
                )
            _LOG.info("checkpoint %s: going on from step %d", self.folder, step)
            return step, folder.load(step, like), about["names"]

    def _open(self) -> Any:
        from orbax.checkpoint import v1 as ocp

        # Weights and rows are secrets: orbax writes files that others may read.
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Orbax removes what a killed save has left in the background: of two folders
        # that are opened one after the other, one then trips over the other.
        if jax.process_index() == 0:
            for unfinished in self.folder.glob(f"*{_UNFINISHED}*"):
                shutil.rmtree(unfinished)
        newest: Any = ocp.training.preservation_policies.LatestN(1)
        return ocp.training.Checkpointer(
            os.fspath(self.folder), preservation_policy=newest
        )


def _is_flat(state: Any) -> bool:
    return isinstance(state, dict) and jax.tree_util.all_leaves(state.values())


def _named(leaves: list[Any]) -> dict[str, Any]:
    """Name leaves by their number: files don't depend on what the pytree is made of."""
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
    """Digest the code and the jaxpr of a function of such arguments.

    Both are needed: constants of compiled functions show in closures alone, contents of
    lists and globals in the jaxpr.
    """
    forms = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), args
    )
    program = jax.make_jaxpr(function)(*forms)
    return fingerprint(function, plain_repr(program.jaxpr), [*program.consts])
