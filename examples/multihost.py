"""Value training points on several processes or hosts, each with its own devices.

Start it once in every process, with the address of the first, how many there are, and
which one this is:

    python examples/multihost.py localhost:12345 2 0 &
    python examples/multihost.py localhost:12345 2 1

On clusters that JAX recognises (Slurm, Cloud TPU, GKE) no arguments are needed.
"""

import sys

import jax

import jaxsel
from jaxsel import data


def main(arguments: list[str]) -> None:
    """Join the other processes, value, and print in the first process only."""
    if len(arguments) not in (0, 3):
        sys.exit(f"expected an address and two numbers, or nothing\n\n{__doc__}")
    try:
        if arguments:
            address, processes, process = arguments
            jaxsel.init_multihost(address, int(processes), int(process))
        else:
            jaxsel.init_multihost()
    except ValueError as error:  # no cluster that JAX recognises, or no numbers
        sys.exit(f"{error}\n\n{__doc__}")
    # The same arrays in every process; the mesh spans the devices of all of them.
    train, val = data.load("digits"), data.load("digits", split="test")
    values = jaxsel.knn_shapley(
        train.as_features(),
        train.y,
        val.as_features(),
        val.y,
        mesh=jaxsel.make_mesh(),
    )
    best = values.top(5)  # every process has the result
    if jax.process_index() == 0:
        print(f"{jax.device_count()} devices; the five best digits: {best.tolist()}")


if __name__ == "__main__":
    main(sys.argv[1:])
