"""Records of made-up runs, for what reads them."""

import numpy as np

DEVICE = {
    "platform": "cpu",
    "kind": "cpu",
    "count": 1,
    "cpu": "Abacus 3000",
    "cores": 2,
    "memory_gb": 25.3,
}


def row(name, seconds, *, wall=None, peer=False, work=1000, status="ok", **figures):
    """Seconds of CPU; the clock's are the same without `wall`."""
    seconds = [float(s) for s in seconds] if status == "ok" else []
    return {
        "name": name,
        "peer": peer,
        "note": "",
        "work": work,
        "status": status,
        "reason": "",
        "figures": figures,
        "wall_s": seconds if wall is None else [float(s) for s in wall],
        "cpu_s": seconds,
        "compile_s": None,
        "peak_bytes": None,
    }


def case(name, rows, *, work=1000, title=None, **needs):
    return {
        "name": name,
        "title": title or f"{name}: all of it",
        "unit": "pair",
        "work": work,
        "load_before": [1.0, 1.0, 1.0],
        "load_after": [1.0, 1.0, 1.0],
        "contenders": rows,
        "targets": [],
        **needs,
    }


def record(*cases, date="20260101T000000Z", bench="knn", quick=False, **device):
    return {
        "schema": 1,
        "bench": bench,
        "quick": quick,
        "date": date,
        "device": DEVICE | device,
        "versions": {"python": "3.11.7", "jax": "0.10.2"},
        "revision": f"{date[:8]}aaaa",
        "clock": "cpu_s",
        "cases": list(cases),
    }


def scattered(median, seed, *, rounds=7, share=0.03):
    """Seconds of some rounds, that scatter by a share."""
    rng = np.random.default_rng(seed)
    return median * np.exp(share * rng.standard_normal(rounds))
