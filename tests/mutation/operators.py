"""What is mutated, and how: cosmic-ray's operators, and three of ours.

Every operator changes one place to its nearest neighbour (`<` to `<=`, `+` to `-`):
far ones (`+` to `<<`) mostly end in a TypeError, which says nothing about the tests.

Left out, since such mutants are equivalent or speak of no result:

- docstrings and other strings, annotations, `__all__`, decorators, imports;
- what is said: messages of exceptions and warnings, f-strings, `__repr__` and the like;
- what is shown: any statement that names `progress`;
- how fast it goes: module constants named for blocks, chunks and buffers, and arguments
  in `_IDLE`, which say what holds anyway, so that JAX or NumPy can save work;
- numbers of 100 or more: plus or minus one, they set the same limits.
"""

import ast
import functools
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import parso
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator

_NEAREST = {
    "Binary": "Add_Sub Sub_Add Mul_Div Div_Mul FloorDiv_Mul Mod_FloorDiv Pow_Mul"
    " RShift_LShift LShift_RShift BitOr_BitAnd BitAnd_BitOr BitXor_BitOr",
    "Comparison": "Eq_NotEq NotEq_Eq Lt_LtE LtE_Lt Gt_GtE GtE_Gt Is_IsNot IsNot_Is",
    "Unary": "Delete_USub Delete_Not Delete_Invert",
}
_OTHERS = (
    "AddNot",
    "NumberReplacer",
    "ReplaceAndWithOr",
    "ReplaceBreakWithContinue",
    "ReplaceContinueWithBreak",
    "ReplaceFalseWithTrue",
    "ReplaceOrWithAnd",
    "ReplaceTrueWithFalse",
    "ZeroIterationForLoop",
)
_TWINS = (
    ("all", "any"),
    ("argmax", "argmin"),
    ("ceil", "floor"),
    ("cummax", "cummin"),
    ("max", "min"),
    ("maximum", "minimum"),
    ("mean", "sum"),
    ("ones", "zeros"),
    ("ones_like", "zeros_like"),
)
_LARGE = 100
_IDLE = {
    "batch_size",
    "copy",
    "desc",
    "donate_argnums",
    "indices_are_sorted",
    "mode",
    "progress",
    "stacklevel",
    "strict",
    "unique_indices",
}
_SPEED = re.compile(r"_?[A-Z_]*(BLOCK|BUFFER|BYTES|CHUNK|LEVELS|MANY)[A-Z_]*")
_SAID = {"__repr__", "__str__", "_repr_html_", "warn", "warning", "info", "debug"}


class SwapFunction(Operator):
    """Call the opposite function, as `maximum` for `minimum`."""

    def mutation_positions(self, node):
        if node.type == "name" and node.value in _OPPOSITE:
            after = node.get_next_leaf()
            if after is not None and after.value == "(":
                yield node.start_pos, node.end_pos

    def mutate(self, node, index):
        node.value = _OPPOSITE[node.value]
        return node

    @classmethod
    def examples(cls):
        return ()


class DropKeyword(Operator):
    """Leave a keyword argument of a call at its default."""

    def mutation_positions(self, node):
        if node.type == "argument" and node.children[1] == "=":
            yield node.start_pos, node.end_pos

    def mutate(self, node, index):
        # `**{}` is allowed wherever a keyword argument is.
        return parso.parse(f"{node.get_first_leaf().prefix}**{{}}")

    @classmethod
    def examples(cls):
        return ()


class DropStatement(Operator):
    """Raise nothing, call nothing whose result is not kept, update nothing."""

    def mutation_positions(self, node):
        if node.type == "raise_stmt" or _is_call(node) or _is_update(node):
            yield node.start_pos, node.end_pos

    def mutate(self, node, index):
        return parso.parse(f"{node.get_first_leaf().prefix}pass")

    @classmethod
    def examples(cls):
        return ()


_OPPOSITE = dict(_TWINS) | {b: a for a, b in _TWINS}
OURS: dict[str, Operator] = {
    operator.__name__: operator()
    for operator in (SwapFunction, DropKeyword, DropStatement)
}


class Site(NamedTuple):
    """One possible mutant: an operator, and the place where it would be applied.

    Attributes:
        line: One-based line of the place.
        column: Zero-based column.
        operator: Name of the operator.
        occurrence: Its how-manieth place in the file this is.
    """

    line: int
    column: int
    operator: str
    occurrence: int


@functools.cache
def _operators() -> dict[str, Operator]:
    names = [
        f"Replace{kind}Operator_{name}"
        for kind in ("Binary", "Comparison")
        for name in _NEAREST[kind].split()
    ]
    names += [f"ReplaceUnaryOperator_{name}" for name in _NEAREST["Unary"].split()]
    names += _OTHERS
    return {name: get_operator(f"core/{name}")() for name in names} | OURS


def sites(source: str) -> list[Site]:
    """Return all places of a module that may be mutated, in their order."""
    skipped = _Skipped(source)
    found = []
    nodes = list(ast_nodes(get_ast(source)))
    for name, operator in _operators().items():
        places = (
            (node, start)
            for node in nodes
            for start, _ in operator.mutation_positions(node)
        )
        for occurrence, (node, start) in enumerate(places):
            if not (_is_idle(node) or skipped.holds(start, name)):
                found.append(Site(start[0], start[1], name, occurrence))
    return sorted(found)


def _is_idle(node: Any) -> bool:
    """Whether it is a large number, or the star before keyword-only parameters."""
    if node.type == "number":
        return abs(ast.literal_eval(node.value)) >= _LARGE
    return node.type == "operator" and node.parent.type in ("parameters", "lambdef")


def mutate(source: str, site: Site) -> str | None:
    """Return the mutated module, or None if it is the same, or does not compile."""
    mutated = mutate_code(source, _operators()[site.operator], site.occurrence)
    try:
        if mutated is None or ast.dump(ast.parse(mutated)) == ast.dump(
            ast.parse(source)
        ):
            return None
        compile(mutated, "", "exec")
    except (SyntaxError, SyntaxWarning):
        return None
    return mutated


class _Skipped(ast.NodeVisitor):
    """The spans of a module that mutants stay out of; see the top of this file."""

    def __init__(self, source: str):
        self._spans: list[tuple[tuple[int, int], tuple[int, int]]] = []
        self._raised: list[tuple[int, int]] = []
        self._lines = source.splitlines()
        self.visit(ast.parse(source))

    def holds(self, start: tuple[int, int], operator: str) -> bool:
        if start in self._raised and operator == "DropStatement":
            return False
        return any(first <= start < last for first, last in self._spans)

    def _skip(self, node: ast.AST | None) -> None:
        if node is None:
            return
        spot: Any = node
        self._spans.append(
            (
                self._place(spot.lineno, spot.col_offset),
                self._place(spot.end_lineno, spot.end_col_offset),
            )
        )

    def _place(self, line: int, offset: int) -> tuple[int, int]:
        """Columns of ast are bytes of UTF-8, those of parso characters."""
        return line, len(self._lines[line - 1].encode()[:offset].decode())

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.stmt) and not hasattr(node, "body"):
            names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
            if "progress" in names:
                self._skip(node)
        super().visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name in _SAID or any(
            "overload" in ast.unparse(d) for d in node.decorator_list
        ):
            self._skip(node)
        for decorator in node.decorator_list:
            self._skip(decorator)
        self._skip(node.returns)
        named = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
        for parameter, default in named:
            if parameter.arg in _IDLE:
                self._skip(default)
        self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for decorator in node.decorator_list:
            self._skip(decorator)
        self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> None:
        self._skip(node.annotation)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._skip(node.annotation)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name) and (
                target.id == "__all__" or _SPEED.fullmatch(target.id)
            ):
                self._skip(node)
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._raised.append(self._place(node.lineno, node.col_offset))
        self._skip(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name in _SAID | {"print", "TypeVar"}:
            self._skip(node)
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg in _IDLE:
            self._skip(node)
        self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        self._skip(node)

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) in ("TYPE_CHECKING", "progress"):
            self._skip(node)
        self.generic_visit(node)


def _is_call(node: Any) -> bool:
    """Whether a statement is a call and nothing else."""
    if node.type not in ("atom_expr", "power") or node.parent is None:
        return False
    last = node.children[-1]
    called = last.type == "trailer" and last.children[0] == "("
    return called and node.parent.type in ("simple_stmt", "suite", "file_input")


def _is_update(node: Any) -> bool:
    """Whether a statement is an augmented assignment, as `x += 1`."""
    return (
        node.type == "expr_stmt"
        and node.children[1].type == "operator"
        and (node.children[1].value.endswith("=") and node.children[1].value != "=")
    )


def all_mutants(source: str) -> Iterator[tuple[Site, str]]:
    """Yield every place, with the module mutated there."""
    for site in sites(source):
        mutated = mutate(source, site)
        if mutated is not None:
            yield site, mutated
