"""A benchmark with every kind of contender: sums of squares of a vector."""

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks._case import Case, Contender, Target

ORDER: list[str] = []
MEGABYTES = 64


def cases(*, quick=False):
    n = 1_000 if quick else 10_000
    return [
        Case(
            name="squares",
            title="Sum of squares",
            inputs=lambda: np.arange(n, dtype=np.float32),
            tiny=lambda: np.arange(3, dtype=np.float32),
            work=n,
            unit="entry",
            flops=2,
            bytes=4,
            contenders=[
                _contender("jax", _jax),
                _contender("slow", _slow, peer=True, share=0.1),
                _contender("wrong", lambda x: lambda: 1.01 * np.sum(x**2)),
                _contender("nan", lambda x: lambda: np.float32("nan")),
                _contender("broken", _broken),
                _contender("missing", _missing),
                _contender("hungry", _hungry),
            ],
            targets=[
                _target("ratio", "at least", 1.0, against="slow"),
                _target("ratio", "at most", 1.0, against="slow"),
                _target("ratio", "at least", 1.0, against="missing"),
                _target("peak_mb", "at least", 0.95 * MEGABYTES, contender="hungry"),
                _target("peak_mb", "at most", 1.0, contender="hungry"),
                _target("error", "at most", 1e-5),
                _target("error", "at most", 1.0, contender="wrong"),
            ],
            rounds=5,
        ),
        Case(
            name="elsewhere",
            title="For another device",
            inputs=_fails,
            tiny=_fails,
            work=1,
            unit="entry",
            contenders=[_contender("jax", _jax)],
            targets=[_target("rate", "at least", 1.0)],
            platforms=["abacus"],
        ),
    ]


def _contender(name, make, *, peer=False, share=1.0):
    def recorded(x):
        call = make(x)

        def run():
            ORDER.append(name)
            return call()

        return run

    def check(x, result):
        exact = np.sum(x.astype(np.float64) ** 2)
        return {"error": abs(float(result) - exact) / exact}

    return Contender(
        name=name,
        make=recorded,
        check=check,
        limits={"error": 1e-5},
        peer=peer,
        share=share,
    )


def _target(quantity, bound, limit, *, contender="jax", against=None):
    return Target(
        text=f"{contender} {quantity} {bound} {limit}",
        level="must",
        contender=contender,
        quantity=quantity,
        bound=bound,
        limit=limit,
        against=against,
    )


def _jax(x):
    squares = jax.jit(lambda x: jnp.sum(x * x))
    return lambda: squares(x)


def _slow(x):
    return lambda: sum(float(v) ** 2 for v in x)


def _hungry(x):
    def call():
        waste = np.ones(MEGABYTES * 10**6, np.uint8)
        return np.sum(x.astype(np.float64) ** 2) * waste[-1]

    return call


def _broken(x):
    raise RuntimeError("broken on purpose")


def _missing(x):
    import no_such_module

    return lambda: no_such_module.sum(x)


def _fails():
    raise AssertionError("a case for another device makes no inputs")
