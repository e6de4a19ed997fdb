"""Words of posts as features: adverts among discussions, in place of spam."""

from __future__ import annotations

import numpy as np

from experiments._kit.scenes.samples import Part
from jaxsel.data import info, load

POSTS, ADVERTS = "newsgroups", "misc.forsale"
WORDS = 200
_PER_ADVERT = 2  # discussions
_OTHER = 2000  # posts of the test split, of which words and their weights are taken


def posts_there() -> bool:
    """Return whether the newsgroups are prepared on this machine."""
    return info(POSTS).path is not None


def posts() -> Part:
    """Return the adverts, class 1, and twice as many other posts, as counts of words.

    The adverts are the posts to one group, the others are drawn from all the rest.
    Words are chosen and weighted by posts of the test split, which are never valued.
    """
    data, other = load(POSTS, split="train"), load(POSTS, split="test")
    if data.class_names is None:
        raise ValueError(f"{POSTS} must name its classes")
    advert = np.asarray(data.y) == list(data.class_names).index(ADVERTS)
    rng = np.random.default_rng(0)
    n = int(advert.sum())
    discussions = rng.choice(np.flatnonzero(~advert), _PER_ADVERT * n, replace=False)
    rows = np.concatenate([np.flatnonzero(advert), discussions])
    chosen = rng.choice(len(other.y), _OTHER, replace=False)
    x, other_x = word_weights(
        [str(text) for text in data.x[rows]], [str(text) for text in other.x[chosen]]
    )
    adverts = np.asarray(other.y)[chosen] == list(data.class_names).index(ADVERTS)
    return Part(x, advert[rows].astype(int), other_x, adverts.astype(int))


def word_weights(
    texts: list[str], other: list[str], words: int = WORDS
) -> tuple[np.ndarray, np.ndarray]:
    """Return TF-IDF features of texts and of others, `[n, w]` and `[m, w]`.

    The w words are those that occur most often in the others. A word weighs its count
    times log((1 + m) / (1 + texts that have it)) + 1, by the others; rows have unit
    length.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    weigh = TfidfVectorizer(max_features=words)
    theirs = weigh.fit_transform(other)
    dense = lambda x: np.asarray(x.todense(), np.float32)
    return dense(weigh.transform(texts)), dense(theirs)
