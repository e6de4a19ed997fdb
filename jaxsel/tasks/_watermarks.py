"""Watermarks: how soon low values find them, and whether removal breaks them."""

# The decorator fills in all options.
# pyright: reportTypedDictNotRequiredAccess=false

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Unpack

import jax
import numpy as np
import numpy.typing as npt

from jaxsel._inputs.checks import check_choice
from jaxsel.data import (
    instance_watermark as plant_instances,
    pattern_watermark as plant_corner,
    text_blend_watermark as plant_text,
)

from ._application import Run, ValueFunction, check_source
from ._curves import Curves
from ._embedding import pixels
from ._learners import CNN_LEARNER, Test
from ._options import TrainOptions, task_options
from ._planted import Planted, watermark_curves


@task_options(TrainOptions, learner=CNN_LEARNER)
def pattern_watermark_detection(
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    methods: Mapping[str, ValueFunction],
    *,
    rate: float = 0.1,
    remove: float | None = None,
    pattern: Literal["corner", "text"] = "corner",
    size: int = 3,
    text: str = "TEST",
    label: int = 0,
    key: jax.Array,
    **options: Unpack[TrainOptions],
) -> Curves:
    """Mark a share of the training images with a pattern, and look for the marked ones.

    The owner of the mark puts it on test images. The mark succeeds on one if a model
    that was trained on the marked set then answers with the class that the mark stands
    for. Test images are asked about only if that is not their own class.

    Args:
        x: Source, images `[m, h, w, c]` in 0..1 or bytes.
        y: Its classes `[m]`, counted from 0.
        methods: Value functions `f(x, y, x_val, y_val, key)` by name. "Random" is
            added.
        rate: Share of the training set to mark.
        remove: Share of the training set to remove, lowest values first, before the
            model is trained again; as many as are marked if None.
        pattern: "corner", pixels in a corner whose mark stands for the next class, or
            "text", a blended word that stands for one class.
        size: Side of the corner in pixels.
        text: The word.
        label: The class that the word stands for.
        key: Key of every draw; repetition s has `fold_in(key, s)`.
        **options: Sizes, learner, seeds and features: see `TaskOptions`. Test points
            are for accuracy and, marked, for success.

    Returns:
        Share of the marked samples found, against the share inspected. Measures are
        "auc", "found_at_bad", "success_after" and "accuracy_after" (after removal). The
        reference holds "success_before" and "accuracy_before", and "success_unmarked"
        and "accuracy_unmarked" of a model that never saw a mark: chance level.

    Costs one call of each method, and one training for each method and two more, for
    each seed.

    Raises:
        ValueError: If there are too few rows, a rate is out of range, the pattern does
            not fit, or a method's values do not.
        TypeError: If a method is not a function.

    References:
        Jia et al., Scalability vs. utility, CVPR 2021, appendix E.2.
    """
    check_choice("pattern", pattern, ("corner", "text"))
    source = check_source(x, y)
    classes = source.n_classes
    if not 0 <= label < classes:
        raise ValueError(f"label must be between 0 and {classes - 1}, got {label}")

    def mark(
        key: jax.Array, images: np.ndarray, labels: np.ndarray, rate: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if pattern == "corner":
            planted = plant_corner(
                key, images, labels, rate, n_classes=classes, size=size
            )
        else:
            planted = plant_text(key, images, labels, rate, label=label, text=text)
        new_x, new_y, marked = map(np.asarray, planted)
        return new_x, new_y.astype(np.int64), marked

    def plant(run: Run, train: Test, test: Test) -> Planted:
        marked = mark(run.keys.corrupt, *train, rate)
        x_asked, y_asked, _ = mark(run.keys.corrupt, *test, 1.0)
        foreign = y_asked != test[1]
        return Planted(*marked, (x_asked[foreign], y_asked[foreign]))

    sizes = f"n={options['n']}, n_val={options['n_val']}"
    return watermark_curves(
        source,
        methods,
        plant,
        name=f"Pattern watermark ({pattern}, {sizes}, rate={rate:g})",
        rate=rate,
        remove=remove,
        key=key,
        options=options,
    )


@task_options(TrainOptions)
def instance_watermark_detection(
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    foreign_x: npt.ArrayLike,
    methods: Mapping[str, ValueFunction],
    *,
    rate: float = 0.1,
    remove: float | None = None,
    label: int | npt.ArrayLike | None = None,
    key: jax.Array,
    **options: Unpack[TrainOptions],
) -> Curves:
    """Replace a share of the training set by foreign samples, and look for those.

    The owner asks a model about the very samples that were planted. The watermark
    succeeds on one if the model answers with the class that it was planted with.

    Foreign samples that lie far from all validation points matter little for any of
    them. The maximum of a value over validation points may then tell them apart better
    than the mean: pass
    `lambda x, y, x_val, y_val, key: knn_shapley(x, y, x_val, y_val, reduce="max")`
    among the methods.

    Args:
        x: Source, images `[m, h, w, c]` or a table `[m, d]`. Bytes count as 0..1.
        y: Its classes `[m]`, counted from 0.
        foreign_x: Samples from elsewhere, of the shape of those in `x`. Each is planted
            once before any is planted again.
        methods: Value functions `f(x, y, x_val, y_val, key)` by name. "Random" is
            added.
        rate: Share of the training set to replace.
        remove: Share of the training set to remove, lowest values first, before the
            model is trained again; as many as were planted if None.
        label: The class of all foreign samples, or one for each; drawn anew for each
            sample and seed if None.
        key: Key of every draw; repetition s has `fold_in(key, s)`.
        **options: Sizes, learner, seeds and features: see `TaskOptions`.

    Returns:
        As `pattern_watermark_detection`.

    Costs as `pattern_watermark_detection`.

    Raises:
        ValueError: If there are too few rows, a rate is out of range, foreign samples
            or labels do not fit, or a method's values do not.
        TypeError: If a method is not a function.

    References:
        Adi et al., Turning your weakness into a strength, USENIX Security 2018; Jia et
        al., Scalability vs. utility, CVPR 2021, section 4.3 and appendix E.2.
    """
    source = check_source(x, y)
    foreign = pixels(np.asarray(foreign_x))
    if foreign.shape[1:] != source.x.shape[1:] or not len(foreign):
        raise ValueError(
            f"foreign_x must hold samples of shape {source.x.shape[1:]}, got an array "
            f"of shape {foreign.shape}"
        )
    fixed = None if label is None else np.asarray(label)
    if fixed is not None and not (
        fixed.shape in ((), (len(foreign),))
        and fixed.dtype.kind in "iu"
        and np.all((fixed >= 0) & (fixed < source.n_classes))
    ):
        raise ValueError(
            f"label must be one class below {source.n_classes}, or one for each of "
            f"{len(foreign)} foreign samples, got {label!r}"
        )

    def plant(run: Run, train: Test, test: Test) -> Planted:
        key_rows, key_label = jax.random.split(run.keys.corrupt)
        labels = fixed
        if labels is None:
            labels = jax.random.randint(key_label, (len(foreign),), 0, source.n_classes)
        mixture = plant_instances(key_rows, *train, foreign, rate, label=labels)
        mixed, mixed_labels, planted = map(np.asarray, mixture)
        mixed_labels = mixed_labels.astype(np.int64)
        return Planted(
            mixed, mixed_labels, planted, (mixed[planted], mixed_labels[planted])
        )

    sizes = f"n={options['n']}, n_val={options['n_val']}"
    return watermark_curves(
        source,
        methods,
        plant,
        name=f"Instance watermark ({sizes}, rate={rate:g})",
        rate=rate,
        remove=remove,
        key=key,
        options=options,
        foreign=foreign,
    )
