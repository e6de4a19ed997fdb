"""Every corruption compiles for accelerators that this machine does not have."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import jaxsel.data as data

IMAGES = jnp.zeros((6, 8, 16, 3))
TABLE = jnp.zeros((6, 5))
LABELS = np.zeros(6, np.int32)

CALLS = {
    "flip_labels": lambda k: data.flip_labels(k, LABELS, 0.5, n_classes=4),
    "flip_labels by class": lambda k: data.flip_labels(
        k, LABELS, 0.5, n_classes=2, transition=jnp.eye(2)
    ),
    "permute_labels": lambda k: data.permute_labels(k, LABELS, 0.5),
    "gaussian_noise": lambda k: data.gaussian_noise(k, IMAGES),
    "gaussian_noise table": lambda k: data.gaussian_noise(k, TABLE),
    "mask_patches": lambda k: data.mask_patches(k, IMAGES),
    "mask_patches table": lambda k: data.mask_patches(k, TABLE),
    "color_jitter": lambda k: data.color_jitter(k, IMAGES),
    "perspective": lambda k: data.perspective(k, IMAGES),
    "crop_and_flip": lambda k: data.crop_and_flip(k, IMAGES),
    "pattern_watermark": lambda k: data.pattern_watermark(
        k, IMAGES, LABELS, 0.5, n_classes=4
    ),
    "text_blend_watermark": lambda k: data.text_blend_watermark(
        k, IMAGES, LABELS, 0.5, label=1
    ),
    "instance_watermark": lambda k: data.instance_watermark(
        k, IMAGES, LABELS, IMAGES[:2], 0.5, label=1
    ),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.every(3)
def test_lowers_to_other_platforms(name):
    exported = export.export(jax.jit(CALLS[name]), platforms=["tpu", "cuda"])
    lowered = exported(jax.random.key(0))
    assert lowered.platforms == ("tpu", "cuda")
    assert "custom_call @" not in lowered.mlir_module()
