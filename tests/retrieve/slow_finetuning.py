"""Choices for fine-tuning by definition, in NumPy and float64."""

import numpy as np


def units(rows):
    rows = np.asarray(rows, np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)


def coordinates(pool, target, rank, *, normalise=True):
    """Project gradients, written out, to the main right singular vectors."""
    if normalise:
        pool, target = units(pool), units(target)
    _, sizes, directions = np.linalg.svd(np.asarray(target, np.float64))
    kept = directions[: min(rank, len(sizes))]
    kept = kept[sizes[: len(kept)] > 1e-6 * sizes[0]]
    return np.asarray(pool, np.float64) @ kept.T, target @ kept.T


def herding(rows, k):
    """Follow the mean of the rows; of equal scores the lower index."""
    chosen, total, mean = [], 0.0, rows.mean(0)
    for step in range(k):
        scores = np.round(rows @ ((step + 1) * mean - total), 9)
        scores[chosen] = -np.inf
        chosen.append(int(np.argmax(scores)))
        total = total + rows[chosen[-1]]
    return chosen


def turns(alike, budget):
    """Let each column, in turn, take its largest row that is not taken."""
    chosen = []
    for turn in range(budget):
        column = np.round(alike[:, turn % alike.shape[1]], 9)
        column[chosen] = -np.inf
        chosen.append(int(np.argmax(column)))
    return chosen


def round_robin(pool, target, budget, *, rank=64, normalise=True):
    """Choose by turns among rows that align with a target sample."""
    rows, goal = coordinates(pool, target, rank, normalise=normalise)
    goal = goal[np.abs(goal).max(1) > 0]
    useful = np.flatnonzero((rows @ goal.T).max(1) > 0)
    if budget < len(goal):
        goal = goal[herding(goal, budget)]
    alike = rows @ goal.T
    return useful[turns(alike[useful], min(budget, len(useful)))]
