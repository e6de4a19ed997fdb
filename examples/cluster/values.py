"""Value digits on one host, on Ray, on Slurm, or in shards that are merged at the end.

    python examples/cluster/values.py processes --workers 2
    python examples/cluster/values.py ray                   # a cluster: --address auto
    python examples/cluster/values.py slurm --workers 8     # one job for each batch
    python examples/cluster/values.py shard 0               # of an array of jobs
    python examples/cluster/values.py merge                 # what the shards saved

All but the shards print the same values, whatever computes them.
"""

import argparse
import contextlib
import functools
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import jax

import jaxsel
from jaxsel import data, value

BAGS = 512


class Submitted:
    """Jobs of submitit as an executor: each batch is a job of its own.

    Args:
        folder: On a file system that all hosts share.
        workers: How many jobs to have at once.
        cluster: "slurm", or "local" for processes on this host.
        **parameters: Of `submitit.AutoExecutor.update_parameters`.
    """

    def __init__(self, folder: Path, workers: int, cluster: str, **parameters: Any):
        import submitit  # pyright: ignore[reportMissingImports]

        self._lost = submitit.core.utils.UncompletedJobError
        self._executor: Any = submitit.AutoExecutor(folder, cluster=cluster)
        self._executor.update_parameters(**parameters)
        self._max_workers = max(1, workers // 2)  # a run submits two for each

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> "Job":
        """Submit a job."""
        return Job(self._executor.submit(fn, *args), self._lost)


class Job:
    """A job whose result says by `BrokenExecutor` that it was lost."""

    def __init__(self, job: Any, lost: type[Exception]):
        self._job, self._lost = job, lost

    def result(self) -> Any:
        """Wait, and return what the function did, or raise what it raised."""
        try:
            return self._job.result()
        except self._lost as error:
            raise BrokenExecutor(str(error)) from error

    def done(self) -> bool:
        """Return whether the job has ended."""
        return self._job.done()

    def cancel(self) -> None:
        """Remove the job from the queue."""
        self._job.cancel()


@contextlib.contextmanager
def executor_of(options: argparse.Namespace) -> Iterator[Any]:
    """Yield the executor that was asked for, None for this process."""
    if options.where == "processes":
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(options.workers, mp_context=context) as pool:
            yield pool
    elif options.where == "ray":
        import ray  # pyright: ignore[reportMissingImports]

        ray.init(address=options.address)
        yield value.RayExecutor()
        ray.shutdown()
    elif options.where in ("slurm", "local-jobs"):
        cluster = "slurm" if options.where == "slurm" else "local"
        folder = options.folder / "jobs"
        yield Submitted(folder, options.workers, cluster, timeout_min=60)
    else:
        yield None


def main(arguments: list[str] | None = None) -> jaxsel.Values:
    """Value, save, and print the five lowest."""
    parser = argparse.ArgumentParser()
    kinds = ["here", "processes", "ray", "slurm", "local-jobs", "shard", "merge"]
    parser.add_argument("where", choices=kinds)
    parser.add_argument("number", type=int, nargs="?", default=0, help="of the shard")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--address", help="of a cluster of Ray; auto to find it")
    parser.add_argument("--folder", type=Path, default=Path("run"))
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)

    if options.where == "merge":
        shards = sorted(options.folder.glob("shard-*.npz"))
        parts = [jaxsel.Values.load(path) for path in shards]
        values = functools.reduce(lambda one, two: one.merge(two), parts)
    else:
        values = run(options)
    name = "values" if options.where != "shard" else f"shard-{options.number:04d}"
    values.save(options.folder / f"{name}.npz")
    print(f"{options.where}: the five lowest digits: {values.bottom(5).tolist()}")
    return values


def run(options: argparse.Namespace) -> jaxsel.Values:
    """Value the digits; a run that was cut off goes on from its checkpoint."""
    train = data.load("digits")
    key = jax.random.key(0)
    if options.where == "shard":  # other samples: runs of different keys can be merged
        key = jax.random.fold_in(key, options.number)
    with executor_of(options) as executor:
        return jaxsel.data_oob(
            value.LogisticRegression(),
            train.as_features()[:300],
            train.y[:300],
            key=key,
            stop=value.MaxSamples(BAGS),
            batch_size=64,
            checkpoint=options.folder / f"state-{options.where}-{options.number}",
            executor=executor,
        )


if __name__ == "__main__":
    main()
