"""Every contender of every benchmark, on tiny inputs: what is timed is right."""

import pytest

from benchmarks import (
    bench_filter,
    bench_in_run,
    bench_jobs,
    bench_knn,
    bench_labels,
    bench_market,
    bench_match,
    bench_proxy,
    bench_raw,
    bench_retrain,
    bench_retrieve,
    bench_value,
)

CASES = [
    case
    for bench in (
        bench_filter,
        bench_in_run,
        bench_jobs,
        bench_knn,
        bench_labels,
        bench_market,
        bench_match,
        bench_proxy,
        bench_raw,
        bench_retrain,
        bench_retrieve,
        bench_value,
    )
    for case in bench.cases(quick=True)
    if not case.platforms or case.elsewhere
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "contender"),
    [pytest.param(c, x, id=f"{c.name}-{x.name}") for c in CASES for x in c.contenders],
)
def test_every_contender_is_right(case, contender):
    inputs = case.inputs()
    try:
        call = contender.make(inputs)
    except ImportError as error:
        pytest.skip(str(error))
    figures = contender.check(inputs, call())
    assert set(contender.limits) <= set(figures)
    for name, limit in contender.limits.items():
        assert figures[name] <= limit
