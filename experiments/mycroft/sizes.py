"""How large the experiments are with `--full`."""

from experiments._kit.scenes.trainer import Sizes

FULL = Sizes(
    channels=(16, 32),
    side=28,
    budgets=(8, 16, 32, 64, 128, 256, 512, 1024),
    main=64,
    min_steps=256,
    rate=3e-3,
)
"""Whole images, wider networks, longer training."""
