"""Slow and obvious versions of confident learning, in NumPy, label by label.

They follow Northcutt, Jiang and Chuang, *Confident learning*, JAIR 2021, and cleanlab
2.9 where the paper leaves something open: `tests/labels/test_cleanlab.py` compares both
where cleanlab is installed.
"""

import numpy as np

CLOSE = 1e-6


def thresholds(y, probs):
    """Return the mean probability of each class among its own samples; 2 of none."""
    found = []
    for k in range(probs.shape[1]):
        own = [probs[i, k] for i in range(len(y)) if y[i] == k]
        found.append(np.mean(np.array(own, probs.dtype)) if own else 2)
    return np.maximum(np.array(found), 2e-6)


def guesses(y, probs):
    """Return the class that each sample is confidently counted as, -1 for none."""
    least = thresholds(y, probs) - CLOSE
    found = []
    for row in probs:
        confident = [k for k, p in enumerate(row) if p >= least[k]]
        if not confident:
            found.append(-1)
        else:
            found.append(confident[0] if len(confident) == 1 else int(np.argmax(row)))
    return np.array(found, int)


def confident_counts(y, probs):
    """Return how many samples of each given class are counted as each true one."""
    classes = probs.shape[1]
    counts = np.zeros((classes, classes), int)
    for given, true in zip(y, guesses(y, probs), strict=True):
        if true >= 0:
            counts[given, true] += 1
    for k in range(classes):
        counts[k, k] = max(counts[k, k], 1)
    return counts


def rounded(row):
    """Return whole numbers that add up to the row's own rounded sum."""
    ints, wanted = np.round(row), np.round(np.sum(row))
    while ints.sum() != wanted:
        up = ints.sum() < wanted
        order = np.argsort(row - ints)
        order = order[::-1] if up else order
        for i in order[: min(int(abs(wanted - ints.sum())), len(row))]:
            ints[i] += 1 if up else -1
    return ints.astype(int)


def calibrated(y, counts):
    """Return the counts, scaled so that rows add up to the number of given labels."""
    classes = len(counts)
    of_class = np.array([np.sum(y == k) for k in range(classes)])
    scaled = (counts.T / np.maximum(counts.sum(1), 1e-100) * of_class).T
    # Ties of remainders depend on the last bit: the sum goes true class by true class.
    whole = np.sum(np.ascontiguousarray(scaled.T))
    scaled = scaled / max(whole, 1e-100) * of_class.sum()
    return np.array([rounded(row) for row in scaled])


def latent(y, joint):
    """Return the prior of true classes, P(given | true) and P(true | given)."""
    share = np.array([np.sum(y == k) for k in range(len(joint))]) / len(y)
    given, true = joint.sum(1).astype(float), joint.sum(0).astype(float)
    noise = joint / np.maximum(true, 1e-100)
    inverse = joint.T / np.maximum(given, 1e-100)
    prior = inverse.diagonal() / np.maximum(noise.diagonal(), 1e-100) * share
    prior = np.clip(prior, 1e-6, 1)
    return prior / prior.sum(), _columns(noise), _columns(inverse)


def _columns(matrix):
    diagonal = matrix.diagonal().copy()
    matrix = np.clip(matrix, 0, 0.9999)
    matrix[np.diag_indices(len(matrix))] = diagonal
    return matrix / np.maximum(matrix.sum(0), 1e-100)


def to_prune(joint, min_per_class=1, noise_share=1.0):
    """Return how many labels to take: column k's given labels are k, rows are true."""
    table = joint.T.astype(float)
    diagonal = table.diagonal().copy()
    grown = np.maximum(diagonal, min_per_class)
    others = np.maximum((joint.T != 0).sum(0) - 1, 1)
    table = np.maximum(table - (grown - diagonal) / others, 0)
    np.fill_diagonal(table, grown)
    less = table * noise_share
    np.fill_diagonal(less, grown)
    np.fill_diagonal(less, grown + (table - less).sum(0))
    less = less.astype(int)  # towards zero
    return np.array([rounded(row.astype(float)) for row in less])


def agrees(y, probs):
    """Return which given labels are predicted, or nearly so."""
    raised = probs.copy()
    for i, given in enumerate(y):
        raised[i, given] += CLOSE
    return raised.argmax(1) == y


def scores(y, probs, method):
    """Return the quality of each label: 0 is the worst."""
    found = []
    for given, row in zip(y, probs, strict=True):
        if method == "self_confidence":
            found.append(row[given])
        elif method == "normalized_margin":
            found.append((row[given] - np.max(np.delete(row, given)) + 1) / 2)
        else:
            entropy = -np.sum([p * np.log(p) if p > 0 else 0 for p in row])
            ratio = entropy / np.log(len(row)) / max(row[given], 1e-6)
            found.append(np.log(ratio + 1) / max(ratio, 1e-6))
    return np.array(found)


def issues(y, probs, filter_by, min_per_class=1, noise_share=1.0, joint=None):
    """Return which labels one of the filters takes, as a mask.

    Of equal numbers at a cut those count that NumPy's argsort puts first.
    """
    n, classes = probs.shape
    guess = guesses(y, probs)
    confident = (guess >= 0) & (guess != y) & ~agrees(y, probs)
    if filter_by == "confident_learning":
        return confident
    if filter_by == "predicted_neq_given":
        return (probs.argmax(1) != y) & ~agrees(y, probs)
    if filter_by.startswith("low_"):
        mask = np.zeros(n, bool)
        order = np.argsort(scores(y, probs, filter_by.removeprefix("low_")))
        mask[order[: confident.sum()]] = True
        return mask
    joint = calibrated(y, confident_counts(y, probs)) if joint is None else joint
    table = to_prune(joint, min_per_class, noise_share)
    by_class, by_rate = np.zeros(n, bool), np.zeros(n, bool)
    for k in range(classes):
        rows = np.flatnonzero(y == k)
        if len(rows) <= max(min_per_class, 1):
            continue
        by_class[rows[np.argsort(probs[rows, k])[: len(rows) - table[k, k]]]] = True
        for j in range(classes):
            if j != k and table[j, k] > 0:
                margin = probs[rows, j] - probs[rows, k]
                by_rate[rows[np.argsort(-margin)[: table[j, k]]]] = True
    mask = {
        "prune_by_class": by_class,
        "prune_by_noise_rate": by_rate,
        "both": by_class & by_rate,
    }[filter_by]
    return mask & ~agrees(y, probs)
