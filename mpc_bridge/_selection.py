"""Run a multi-phase selection in secret: the parties' inputs in, a `Selection` out."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import jax.numpy as jnp
import numpy as np

from jaxsel import Selection
from jaxsel._inputs.checks import check_count
from jaxsel.models import Target
from jaxsel.proxy import DataOwner, Phased, Prepared, Proxy, Published, Samples

from ._config import (
    LEAKS,
    Appraisal,
    Config,
    DataOwner as DataPart,
    Inputs,
    Leak,
    ModelOwner as ModelPart,
    Parties,
    PhaseConfig,
    Session,
)
from ._export import export
from ._limits import Limits
from ._local import run_local
from ._private import temporary_folder
from ._session import run
from ._toml import GIB, LONGEST, SHORTEST, check_rendezvous
from .engines import ENGINES

if TYPE_CHECKING:
    from ._result import Result

Party = Literal["model-owner", "data-owner"]
PARTIES: tuple[Party, ...] = ("model-owner", "data-owner")
_FREE_PORT = "tcp://127.0.0.1:0"


def run_selection(
    phased: Phased | Prepared | Published,
    pool: Samples | None = None,
    *,
    base: Target | None = None,
    role: Party | None = None,
    engine: str = "spu-cheetah",
    leak: Leak = "rank",
    parties: Parties | None = None,
    certificates: str | os.PathLike[str] | None = None,
    rendezvous: str | None = None,
    name: str = "selection",
    seed: int = 0,
    appraisal: Literal["mean", "none"] | float = "none",
    batch_size: int | None = None,
    memory: int = 2 * GIB,
    timeout: float = 60.0,
    output: str | os.PathLike[str] | None = None,
    deliver: bool | Mapping[str, Any] = False,
    test_only_first_party: bool = False,
    pools: str | os.PathLike[str] | None = None,
    limits: Limits | None = None,
    measure: bool = True,
    force: bool = False,
    progress: bool = False,
    notice: bool = True,
    python: str | os.PathLike[str] | None = None,
) -> Selection:
    """Choose in secret the samples that a multi-phase selection would choose.

    By default all roles run here, as processes on loopback, for trials. With `role`
    that party runs here, and meets the others: SPU's at the addresses of `parties`,
    known by their `certificates`; CrypTen's at `rendezvous`. What a role reads, weights
    or embedded samples, goes through a temporary folder that only this user may open.

    Args:
        phased: What the model owner has prepared: of `ProxyMaker.prepare`, or of
            `select`. The data owner alone needs its `published` part only.
        pool: The data owner's samples; the model owner gives none.
        base: The public base model that embeds the samples; not needed by probes.
        role: "model-owner" or "data-owner"; None plays all roles on this machine.
        engine: "spu-cheetah", between the two parties alone; "spu-aby3", with a helper
            who runs `mpc_bridge.run("third-party", ...)`, and "spu-aby3-128" with more
            digits; "crypten", for measurement between parties in trust, with a dealer
            who runs `deal`.
        leak: What choices open: "rank" or "set", see `choose`.
        parties: Names and addresses, needed with `role` by SPU's engines.
        certificates: Folder of `python -m mpc_bridge certs`, likewise.
        rendezvous: Where CrypTen's model owner listens, "tcp://host:port". Needed with
            `role`; without, a free port on loopback.
        name: Of the session; parties of two sessions refuse each other.
        seed: Of the pivots: public, the same for both parties.
        appraisal: What both learn of the chosen rows' scores besides: their "mean", one
            bit, whether the mean is at least a given number, or "none".
        batch_size: Samples that are scored together; None takes what fits `memory`.
        memory: Bytes that a party may use for what grows with the batch.
        timeout: Of every wait for another party's message, in seconds.
        output: Folder for the `Result`, with costs, openings and the appraisal: it lies
            in `output/model-owner`, in `output/data-owner`, or in both. A run that was
            cut goes on from there when it is called again with the same arguments;
            without a folder nothing is kept, and openings are not counted.
        deliver: Have the data owner send the chosen rows at the end, as it has
            committed to them before the choice: they lie in
            `output/model-owner/delivered.npz`. True sends what the last phase reads; of
            the data owner also arrays by name, with a row for each sample, such as
            labels and what the samples were made from. All parties say so; SPU's
            engines only.
        test_only_first_party: Without a third party; protects nothing.
        pools: The data owner's folder for digests of its pools: one that differs by few
            rows from an earlier one is warned of.
        limits: What a party answers at most, over all runs with this `output`. None
            is one session with `role`, and no limit where all roles run here.
        measure: Attack the answer afterwards, to say in the `Result` what it gave away.
        force: Replace results that lie in the output folder.
        progress: Show bars on standard error.
        notice: Show what CrypTen does not protect from, on standard error.
        python: Interpreter of another environment that runs the roles, with this
            version of jaxsel and the engine: SPU has no wheels for Python 3.12 and
            later. None takes this process's.

    Returns:
        The rows to buy: the bootstrap set, then those chosen in secret, ascending: no
        further order is opened.

    Raises:
        TypeError: If the model owner's proxies are missing.
        ValueError: If an argument is out of range, the pool or the base model is
            missing or does not fit the phases, or a proxy does not fit the ring.
        ConfigError: If the rendezvous is missing or no address, a result exists in the
            output folder, or `python` does not fit.
        Refused: If a party's own arrays break the terms, in this process.
        SessionError: If another party stopped, is gone, or does not agree; if a role
            failed, when all run here.
    """
    _check_roles(role, engine, rendezvous, parties, certificates)
    if leak not in LEAKS:
        raise ValueError(f"leak must be one of {', '.join(LEAKS)}, got {leak!r}")
    if not name.strip():
        raise ValueError(f"name must not be empty, got {name!r}")
    check_count("seed", seed, minimum=0)
    check_count("memory", memory)
    if not SHORTEST <= timeout <= LONGEST:
        raise ValueError(
            f"timeout must be from {SHORTEST} to {LONGEST} seconds, got {timeout}"
        )
    if batch_size is not None:
        check_count("batch_size", batch_size)
    if deliver and output is None and role != "data-owner":
        raise ValueError("output must be given with deliver: the rows lie there")
    published, proxies = _parts(phased)
    session = Session(
        name=name,
        seed=seed,
        engine=engine,
        leak=leak,
        deliver=bool(deliver),
        rendezvous=rendezvous or _FREE_PORT if engine == "crypten" else None,
        samples=published.n,
        exclude=published.bootstrap,
        timeout=float(timeout),
    )
    options: dict[str, Any] = {
        "test_only_first_party": test_only_first_party,
        "force": force,
        "progress": progress,
        "notice": notice,
        "python": python,
    }
    shared: dict[str, Any] = {
        "memory": memory,
        "certificates": None if certificates is None else Path(certificates),
        "measure": measure and output is not None,
        "limits": limits or Limits(),
    }
    with temporary_folder("selection") as folder:
        place, parts = folder if output is None else Path(output), {}
        phases = _write_manifests(published, batch_size, folder)
        if role != "data-owner":
            parts["model_owner"] = ModelPart(
                weights=_write_weights(proxies, folder),
                output=place / "model-owner",
                **shared,
            )
        if role != "model-owner":
            parts["data_owner"] = DataPart(
                inputs=_write_inputs(published, pool, base, folder),
                deliver=_write_arrays(deliver, folder),
                output=place / "data-owner",
                pools=None if pools is None else Path(pools),
                **shared,
            )
        config = Config(
            session=session,
            phases=phases,
            appraisal=_appraisal(appraisal),
            parties=parties,
            **parts,
        )
        result = _run(role, config, options)
    rows = np.array([*published.bootstrap, *result.rows], np.int32)
    return Selection(
        indices=jnp.asarray(rows),
        weights=jnp.ones(len(rows), jnp.float32),
        n_valid=jnp.asarray(len(rows), jnp.int32),
        method=f"run_selection({len(phases)} phases)",
    )


def _check_roles(
    role: str | None,
    engine: str,
    rendezvous: str | None,
    parties: Parties | None,
    certificates: str | os.PathLike[str] | None,
) -> None:
    """Raise unless the engine's parties can meet."""
    if role is not None and role not in PARTIES:
        raise ValueError(
            f"role must be one of {', '.join(PARTIES)}, or None for all, got {role!r}: "
            "the third party runs mpc_bridge.deal"
        )
    if engine not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, got {engine!r}")
    if engine == "crypten":
        if role is not None or rendezvous is not None:
            check_rendezvous("rendezvous", rendezvous)
    elif rendezvous is not None:
        raise ValueError(
            f"rendezvous is for engine 'crypten' only, got {rendezvous!r} with "
            f"engine {engine!r}"
        )
    elif role is not None and (parties is None or certificates is None):
        raise ValueError(
            f"parties and certificates must be given with role and engine {engine!r}"
        )


def _run(role: Party | None, config: Config, options: dict[str, Any]) -> Result:
    """Run one role, or all of them; return the result of an owner."""
    if role is None:
        return run_local(config, **options)
    return cast("Result", run(role, config, **options))  # only a third party has none


def _parts(
    phased: Phased | Prepared | Published,
) -> tuple[Published, tuple[Proxy, ...] | None]:
    """Return the public part of phases, and the proxies if they were passed."""
    if isinstance(phased, Phased):
        phased = phased.prepared
    if isinstance(phased, Prepared):
        return phased.published, phased.proxies
    if isinstance(phased, Published):
        return phased, None
    raise TypeError(
        f"phased must be a Phased, Prepared or Published, got {type(phased).__name__}"
    )


def _write_manifests(
    published: Published, batch_size: int | None, folder: Path
) -> tuple[PhaseConfig, ...]:
    phases = []
    for i, manifest in enumerate(published.manifests):
        path = folder / f"phase-{i}" / "manifest.json"
        path.parent.mkdir()
        path.write_text(manifest.to_json(), encoding="utf-8")
        keep = published.keeps[i]
        phases.append(PhaseConfig(manifest=path, keep=keep, batch_size=batch_size))
    return tuple(phases)


def _write_weights(proxies: tuple[Proxy, ...] | None, folder: Path) -> tuple[Path, ...]:
    if proxies is None:
        raise TypeError(
            "phased must hold the proxies on the model owner's side: a Phased or a "
            "Prepared, got Published"
        )
    return tuple(
        export(proxy, folder / f"phase-{i}") for i, proxy in enumerate(proxies)
    )


def _write_inputs(
    published: Published, pool: Samples | None, base: Target | None, folder: Path
) -> tuple[Inputs, ...]:
    """Write each phase's inputs from the pool; equal inputs are written once."""
    if pool is None:
        raise ValueError("pool must be given on the data owner's side, got None")
    if len(pool) != published.n:
        raise ValueError(
            f"pool must hold the {published.n} samples of phased, got {len(pool)}"
        )
    owner, written = DataOwner(pool=pool, base=base), {}
    for i, manifest in enumerate(published.manifests):
        if manifest.inputs in written:
            continue
        x, mask = owner.proxy_inputs(manifest)
        if manifest.inputs.embed != "onehot":
            x = np.asarray(x, np.float32)
        place = Inputs(x=folder / f"x-{i}.npy")
        np.save(place.x, x)
        if mask is not None and manifest.inputs.masked:
            place = dataclasses.replace(place, mask=folder / f"mask-{i}.npy")
            np.save(folder / f"mask-{i}.npy", mask)
        written[manifest.inputs] = place
    return tuple(written[manifest.inputs] for manifest in published.manifests)


def _write_arrays(arrays: bool | Mapping[str, Any], folder: Path) -> tuple[Path, ...]:
    """Write the arrays to deliver beside the inputs of the phases."""
    if isinstance(arrays, bool):
        return ()
    (folder / "delivery").mkdir()
    paths = tuple(folder / "delivery" / f"{name}.npy" for name in arrays)
    for path, array in zip(paths, arrays.values(), strict=True):
        np.save(path, np.asarray(array), allow_pickle=False)
    return paths


def _appraisal(appraisal: str | float) -> Appraisal:
    if appraisal in ("mean", "none"):
        return Appraisal(mode=appraisal)
    if isinstance(appraisal, bool | str) or not np.isfinite(appraisal):
        raise ValueError(
            f"appraisal must be 'mean', 'none' or a finite number, got {appraisal!r}"
        )
    return Appraisal(mode="threshold", threshold=float(appraisal))
