"""Which faults are put into a source: fixed operators, each of which changes one place.

    operator    before                 after
    compare     a < b   a == b         a <= b   a != b      each comparison becomes its neighbour, or its opposite
    boolean     a and b   not a        a or b   a
    arithmetic  a + b   a << b         a - b   a >> b
    number      3   0   120_000        4   1   240000      great ones twice: nobody sees a millisecond more
    constant    True   None            False   True
    condition   if a:  while a:        if not (a):          also of a conditional expression and of a comprehension
    call        f(x)  await f(x)       nothing happens      a statement that is a call only, or raises, or deletes
    return      return a               return None
    jump        break                  continue             and the other way
    extreme     min(a, b)              max(a, b)            and the other way
    order       sorted(a)              list(a)
    update      a += b                 a -= b   a = b

Left out is what cannot be seen by intent: annotations, docstrings and other texts, log calls, ``__repr__``, imports,
``if TYPE_CHECKING``, ``...`` of protocols, the default of a ``pop`` whose result is not used, ``strict`` of ``zip``,
and None in the place of False.
"""

import ast
from collections.abc import Iterator
from typing import Final, NamedTuple


class Mutation(NamedTuple):
    """One change: the bytes from ``start`` to ``end`` of a UTF-8 source become ``after``; ``line`` counts from 1.

    ``around`` is what stands before it and behind it in its lines. A place of a class, or a default of a parameter, is
    run ``at_import``, though a function or class holds it.
    """

    operator: str
    line: int
    start: int
    end: int
    before: str
    after: str
    function: str
    around: tuple[str, str]
    at_import: bool

    def __str__(self) -> str:
        before, after = (_shorten(text) for text in (self.before, self.after))
        return f"{self.around[0]}{{{before} -> {after}}}{self.around[1]}"

    def apply(self, source: bytes) -> bytes:
        """Return the source with the fault in it."""
        return source[: self.start] + self.after.encode() + source[self.end :]


_COMPARISONS: Final[dict[type[ast.cmpop], str]] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
_ARITHMETIC: Final[dict[type[ast.operator], str]] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "//",
    ast.FloorDiv: "*",
    ast.Div: "*",
    ast.Mod: "//",
    ast.LShift: ">>",
    ast.RShift: "<<",
    ast.BitAnd: "|",
    ast.BitOr: "&",
    ast.BitXor: "|",
}
_GREAT: Final = 1000
_EXTREMES: Final = {"min": "max", "max": "min", "sorted": "list"}
_LOG_NAMES: Final = frozenset({"_log", "logging", "warnings"})
_SILENT_FUNCTIONS: Final = frozenset({"__repr__", "__str__"})


def find_mutations(source: bytes) -> list[Mutation]:
    """Return each change that the operators can make, in the order of the source."""
    finder = _Finder(source)
    finder.visit(ast.parse(source))
    return sorted(finder.found, key=lambda each: (each.start, each.end, each.operator))


class _Finder(ast.NodeVisitor):
    """Walks over a tree and notes what can be changed where."""

    def __init__(self, source: bytes) -> None:
        self.found: list[Mutation] = []
        self._source = source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._functions: list[str] = []
        self._bodies = 0  # of functions, around this place

    # --- what is passed over

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:  # the name that ast looks for
        self._visit_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:  # as above
        self._visit_function(node)

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name in _SILENT_FUNCTIONS:
            return
        self._functions.append(node.name)
        for default in (*node.args.defaults, *(each for each in node.args.kw_defaults if each is not None)):
            self.visit(default)
        self._bodies += 1
        for statement in node.body:
            self.visit(statement)
        self._bodies -= 1
        self._functions.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:  # as above
        self._functions.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self._functions.pop()

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:  # as above
        if node.value is not None:
            self.visit(node.value)

    def visit_Subscript(self, node: ast.Subscript) -> None:  # as above
        if not _is_type(node):
            self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:  # a text
        pass

    def visit_TypeAlias(self, node: ast.AST) -> None:  # as above
        pass

    # --- what is changed

    def visit_Compare(self, node: ast.Compare) -> None:  # as above
        left: ast.expr = node.left
        for operation, right in zip(node.ops, node.comparators, strict=True):
            after = _COMPARISONS[type(operation)]
            self._between("compare", left, right, _text_of(operation), after)
            left = right
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:  # as above
        before, after = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        self._between("boolean", node.values[0], node.values[1], before, after)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:  # as above
        if isinstance(node.op, ast.Not):
            self._whole("boolean", node, f"({self._text(node.operand)})")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:  # as above
        after = _ARITHMETIC.get(type(node.op))
        if after is not None and not _is_text(node.left) and not _is_text(node.right) and not _is_type(node):
            self._between("arithmetic", node.left, node.right, _text_of(node.op), after)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:  # as above
        after = _ARITHMETIC.get(type(node.op))
        if after is not None:
            self._between("update", node.target, node.value, f"{_text_of(node.op)}=", f"{after}=")
            self._between("update", node.target, node.value, f"{_text_of(node.op)}=", "=")
        self.visit(node.value)

    def visit_Constant(self, node: ast.Constant) -> None:  # as above
        value = node.value
        if isinstance(value, bool):
            self._whole("constant", node, str(not value))
        elif isinstance(value, int):
            self._whole("number", node, str(value + 1 if value < _GREAT else 2 * value))
        elif value is None:
            self._whole("constant", node, "True")

    def visit_If(self, node: ast.If) -> None:  # as above
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        self._negate(node.test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:  # as above
        if not isinstance(node.test, ast.Constant):
            self._negate(node.test)
            self.generic_visit(node)
            return
        for statement in node.body:
            self.visit(statement)

    def visit_IfExp(self, node: ast.IfExp) -> None:  # as above
        self._negate(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._negate(test)
        self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> None:  # says what is never false
        pass

    def visit_Expr(self, node: ast.Expr) -> None:  # as above
        value = node.value.value if isinstance(node.value, ast.Await) else node.value
        if not isinstance(value, ast.Call):
            if not isinstance(value, ast.Constant):
                self.generic_visit(node)
            return
        if _is_log_call(value):
            return
        self._whole("call", node, "pass")
        if _is_pop(value):
            value.args.pop()
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:  # as above
        self._whole("call", node, "pass")
        self.generic_visit(node)

    def visit_Delete(self, node: ast.Delete) -> None:  # as above
        self._whole("call", node, "pass")

    def visit_Return(self, node: ast.Return) -> None:  # as above
        if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
            if not (isinstance(node.value, ast.Constant) and node.value.value is False):
                self._whole("return", node, "return None")
            self.visit(node.value)

    def visit_Break(self, node: ast.Break) -> None:  # as above
        self._whole("jump", node, "continue")

    def visit_Continue(self, node: ast.Continue) -> None:  # as above
        self._whole("jump", node, "break")

    def visit_Call(self, node: ast.Call) -> None:  # as above
        if _is_log_call(node):
            return
        if isinstance(node.func, ast.Name) and node.func.id == "zip":
            node.keywords.clear()
        if isinstance(node.func, ast.Name) and node.func.id in _EXTREMES:
            operator = "order" if node.func.id == "sorted" else "extreme"
            self._whole(operator, node.func, _EXTREMES[node.func.id])
        self.generic_visit(node)

    # --- notes

    def _negate(self, test: ast.expr) -> None:
        self._whole("condition", test, f"not ({self._text(test)})")

    def _whole(self, operator: str, node: ast.expr | ast.stmt, after: str) -> None:
        start, end = self._span(node)
        self._note(operator, node.lineno, (start, end), after)

    def _between(self, operator: str, left: ast.expr, right: ast.expr, before: str, after: str) -> None:
        """Note a change of the operator that stands between two operands."""
        start, end = self._span(left)[1], self._span(right)[0]
        place = self._source.find(before.encode(), start, end)
        if place >= 0:
            line = self._source.count(b"\n", 0, place) + 1
            self._note(operator, line, (place, place + len(before)), after)

    def _note(self, operator: str, line: int, span: tuple[int, int], after: str) -> None:
        start, end = span
        before = self._source[start:end].decode()
        head = self._source[self._source.rfind(b"\n", 0, start) + 1 : start].decode().lstrip()
        tail = self._source[end:].partition(b"\n")[0].decode().rstrip()
        function = ".".join(self._functions)
        at_import = self._bodies == 0
        self.found.append(Mutation(operator, line, start, end, before, after, function, (head, tail), at_import))

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None, "ast.parse sets it"
        assert node.end_col_offset is not None, "as above"
        return self._starts[node.lineno - 1] + node.col_offset, self._starts[node.end_lineno - 1] + node.end_col_offset

    def _text(self, node: ast.expr) -> str:
        start, end = self._span(node)
        return self._source[start:end].decode()


_SIGNS: Final[dict[type[ast.AST], str]] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Div: "/",
    ast.Mod: "%",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
}


def _shorten(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 80 else f"{text[:79]}…"


def _text_of(operation: ast.AST) -> str:
    return _SIGNS[type(operation)]


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _is_type(node: ast.expr) -> bool:
    """Tell whether an expression is of types alone: ``int | None``, ``dict[str, int]``."""
    return all(
        isinstance(each, (ast.Name, ast.Attribute, ast.Subscript, ast.BinOp, ast.BitOr, ast.Load, ast.Tuple, ast.List))
        or (isinstance(each, ast.Constant) and (each.value is None or each.value is ...))
        for each in ast.walk(node)
    ) and any(name in _TYPE_NAMES or (name[:1].isupper() and not name.isupper()) for name in _names_in(node))


_TYPE_NAMES: Final = frozenset(
    {"int", "str", "bytes", "float", "bool", "dict", "list", "tuple", "set", "frozenset", "type"}
)


def _names_in(node: ast.expr) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            yield each.id
        elif isinstance(each, ast.Attribute):
            yield each.attr


def _is_pop(node: ast.Call) -> bool:
    """Tell whether a call is ``x.pop(key, default)``."""
    return isinstance(node.func, ast.Attribute) and node.func.attr == "pop" and len(node.args) == 2


def _is_log_call(node: ast.Call) -> bool:
    head = node.func
    while isinstance(head, ast.Attribute):
        head = head.value
    return isinstance(head, ast.Name) and head.id in _LOG_NAMES
