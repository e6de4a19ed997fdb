"""Retrieval as the papers write it: NumPy and loops, float64."""

import numpy as np


def distances(features, hard, metric):
    """Distances `[m, n]`, each from a difference: nothing cancels."""
    x, q = np.asarray(features, np.float64), np.asarray(hard, np.float64)
    if metric == "l2":
        return np.stack([((x - row) ** 2).sum(axis=1) for row in q])
    lengths = np.linalg.norm(x, axis=1), np.linalg.norm(q, axis=1)
    x, q = (
        a / np.where(length > 0, length, 1)[:, None]
        for a, length in zip((x, q), lengths, strict=True)
    )
    return 1 - q @ x.T


def retrieve(features, hard, budget, metric, labels=None, hard_labels=None):
    """Return Algorithm 3's choice: the whole matrix, sorted by rows, then columns."""
    return cover(distances(features, hard, metric), budget, labels, hard_labels)


def cover(near, budget, labels=None, hard_labels=None):
    """Return Algorithm 3's choice from all distances, `[m, n]`."""
    lists = []
    for h, row in enumerate(near):
        order = np.argsort(row, kind="stable")
        if labels is not None:
            order = [i for i in order if labels[i] == hard_labels[h]]
        lists.append([(row[i], int(i)) for i in order])
    chosen = []
    for rank in range(len(near[0])):
        here = [(*r[rank], h) for h, r in enumerate(lists) if rank < len(r)]
        for _, candidate, _ in sorted(here, key=lambda visit: (visit[0], visit[2])):
            if candidate not in chosen:
                chosen.append(candidate)
            if len(chosen) == budget:
                return chosen
    return chosen


def is_missing(value):
    return value is None or value == "" or value != value


def choose_bins(known):
    for bins in (200, 100, 50, 20, 10, 5):
        edges = np.linspace(min(known), max(known), bins + 1)
        if len({one_bin(value, edges) for value in known}) <= 6:
            return bins
    raise AssertionError


def one_bin(value, edges):
    """Return the number of the last edge that `value` reaches."""
    if value > edges[-1]:
        return len(edges) - 1
    if value == edges[-1]:
        return len(edges) - 2 if edges[-1] > edges[0] else 0
    return sum(value >= edge for edge in edges) - 1


def binning_distance(table, hard, *, mode, bins=None, categorical=(), edge_rows=None):
    """Compare all rows, column by column; tables are lists of rows.

    Mode "each" leaves out the minimum of "hamming": distances `[m, n]` of all pairs.
    """
    rows = range(len(table)) if edge_rows is None else edge_rows
    edges = {}
    for j in range(len(hard[0])):
        if j in categorical:
            continue
        source = [table[i][j] for i in rows] + [row[j] for row in hard]
        known = [float(v) for v in source if not is_missing(v)] or [0.0]
        count = choose_bins(known) if bins is None else bins
        edges[j] = np.linspace(min(known), max(known), count + 1)

    def apart(j, a, b):
        if is_missing(a) or is_missing(b):
            return int(is_missing(a) != is_missing(b))
        if j in categorical:
            return int(a != b)
        return abs(one_bin(a, edges[j]) - one_bin(b, edges[j]))

    result, pairs = [], []
    for row in table:
        gaps = [[apart(j, row[j], h[j]) for j in range(len(h))] for h in hard]
        pairs.append([sum(gap > 0 for gap in each) for each in gaps])
        if mode == "hamming":
            result.append(min(pairs[-1]))
        else:
            result.append(sum(min(column) for column in zip(*gaps, strict=True)))
    if mode == "each":
        return [list(column) for column in zip(*pairs, strict=True)]
    return result
