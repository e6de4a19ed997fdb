"""What the Mycroft paper reports, to be read beside our own figures."""

from __future__ import annotations

BUDGETS = (8, 16, 32, 64, 128)

# Table 1: accuracy on hard samples, Mycroft and random, by budget.
VISION = {
    "Food-101, UPMC": (
        (0.42, 0.36),
        (0.50, 0.38),
        (0.61, 0.47),
        (0.75, 0.64),
        (0.86, 0.72),
    ),
    "Food-101, ISIA500": (
        (0.33, 0.18),
        (0.48, 0.33),
        (0.54, 0.40),
        (0.72, 0.61),
        (0.83, 0.70),
    ),
    "ImageNet, Tsinghua": ((0.43, 0.31), (0.62, 0.48), (0.70, 0.56), None, None),
}
DOGS_AND_WOLVES = ((0.44, 0.13), (0.50, 0.13), (0.75, 0.25), (0.75, 0.25), (0.88, 0.38))

# Section 5, scenarios 1 and 2: mean drop in accuracy of Mycroft and random, in points.
DROPS = {"corrupted features": (0.027, 0.137), "permuted labels": (0.044, 0.169)}

# Table 2: without labels Mycroft and random, with labels Mycroft.
NO_LABELS = {
    "Food-101, UPMC": (0.58, 0.19, 0.61),
    "Food-101, ISIA500": (0.47, 0.14, 0.54),
    "ImageNet, Tsinghua": (0.44, 0.25, 0.70),
    "Dogs & Wolves": (0.68, 0.21, 0.75),
}

# Section 5, scenario 4: accuracy with Mycroft, random and everything.
OWNERS = {
    "DO-1": (0.81, 0.18, 0.88),
    "DO-2": (0.63, 0.31, 0.69),
    "DO-3": (0.44, 0.25, 0.63),
    "DO-4": (0.56, 0.25, 0.50),
    "DO-5": (0.19, 0.25, 0.13),
}

# Section 4.3: useful samples retrieved in the spaces of Unicom and of a ResNet-50.
USEFUL = {"Unicom": 0.76, "ResNet-50": 0.06}
