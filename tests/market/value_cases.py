"""Owners whose points are valued together, and a run of all steps between them."""

import numpy as np

import jaxsel
from jaxsel.market import ValueOwner, ask_values, sum_counts

NAMES = ("ada", "bo", "cy", "di", "ed")
RADIUS = 1.5


def draw(n, seed=0):
    rng = np.random.default_rng([n, seed])
    y = rng.integers(0, 3, n)
    return (rng.normal(size=(n, 4)) + y[:, None]).astype(np.float32), y


X_VAL, Y_VAL = draw(20, 1)
DATA = {name: draw(50 if i else 30, i) for i, name in enumerate(NAMES)}


def ask(**options):
    options = {"radius": RADIUS, "owners": NAMES} | options
    return ask_values(X_VAL, Y_VAL, **options)


def pooled(names=NAMES, **options):
    x, y = (np.concatenate([DATA[name][i] for name in names]) for i in (0, 1))
    values = jaxsel.threshold_knn_shapley(
        x, y, X_VAL, Y_VAL, radius=RADIUS, n_classes=3, **options
    )
    ends = np.cumsum([len(DATA[name][0]) for name in names])[:-1]
    return dict(zip(names, np.split(np.asarray(values.values), ends), strict=True))


class Session:
    """Owners up to the point where the sums are opened, with each message in reach."""

    def __init__(self, valuation, data=DATA, **limits):
        self.valuation, self.data = valuation, data
        limits = {"max_epsilon": None} | limits  # exact sums
        self.owners = {
            name: ValueOwner(valuation, *own, owner=name, **limits)
            for name, own in data.items()
        }
        self.keys = [owner.keys() for owner in self.owners.values()]

    def share(self):
        self.shares = [owner.share(self.keys) for owner in self.owners.values()]
        return self

    def mask(self, silent=()):
        self.alive = [name for name in self.owners if name not in silent]
        self.masked = [self.owners[name].masked(self.shares) for name in self.alive]
        self.survivors = self.valuation.survivors(self.masked)
        return self

    def reveal(self, late=()):
        self.revealed = [
            self.owners[name].reveal(self.survivors)
            for name in self.alive
            if name not in late
        ]
        return self

    def sum(self):
        return sum_counts(
            self.valuation, self.keys, self.shares, self.masked, self.revealed
        )

    def values(self, name, sums):
        return self.owners[name].values(sums, *self.data[name])


def whole(valuation=None, **limits):
    return Session(valuation or ask(), **limits).share().mask().reveal()
