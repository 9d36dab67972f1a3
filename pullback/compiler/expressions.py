"""The expressions of a kernel: a table of them, and its renumbering by use."""

from __future__ import annotations

from .loops import Access, Expression, Fold, Scatter, Side
from .values import Value


class ExpressionTable:
    """Expressions by number, and what they refer to by number.

    costs: of an expression with all that it reads. depths: how many folds must have finished before it is known.
    """

    def __init__(self) -> None:
        self.expressions: list[Expression] = []
        self.costs: list[float] = []
        self.depths: list[int] = []
        self.accesses: list[Access] = []
        self.iotas: list[tuple[int, tuple[int, ...]]] = []
        self.checks: list[tuple[int, Value]] = []
        self.terms: list[int] = []
        self.folds: list[Fold] = []


class Pruner(ExpressionTable):
    """Renumbers what the roots use, in order of first use: equal kernels then have equal keys."""

    def __init__(
        self,
        b: ExpressionTable,
        stores: list[tuple[int, int]],
        row_stores: list[tuple[int, int]],
        scatter: Scatter | None,
        sides: list[tuple[int, int, str]],
    ) -> None:
        super().__init__()
        self.b = b
        self.own_costs: list[float] = []
        self.map: dict[int, int] = {}
        self.access_map: dict[int, int] = {}
        self.guard_map: dict[int, int] = {}
        roots = [expression for _, expression in (*stores, *row_stores)]
        roots += [expression for _, expression, _ in sides]
        if scatter is not None:
            roots += [scatter.value, *(argument for argument, _ in scatter.terms)]
        for expression in self._order(roots):
            self._copy(expression)
        self.stores = [(self._access(access), self.map[e]) for access, e in stores]
        self.row_stores = [(self._access(access), self.map[e]) for access, e in row_stores]
        self.sides = [
            Side(how, self.map[e], expression_dtype(b.expressions[e]), b.depths[e], self._access(access))
            for access, e, how in sides
        ]
        self.scatter = None
        if scatter is not None:
            terms = []
            for argument, term in scatter.terms:
                terms.append((self.map[argument], len(self.terms)))
                self.terms.append(b.terms[term])
            copy_term = None
            if scatter.copy_term is not None:
                copy_term = len(self.terms)
                self.terms.append(b.terms[scatter.copy_term])
            self.scatter = Scatter(
                self._access(scatter.access), self.map[scatter.value], tuple(terms), scatter.mode, scatter.copies,
                copy_term,
            )  # fmt: skip

    def _arguments(self, expression: Expression) -> tuple[int, ...]:
        """What must be there first: for a fold what it folds, at other points of the row."""
        if expression[0] == "fold":
            return (self.b.folds[expression[1]].argument,)
        return expression_arguments(expression)

    def _order(self, roots: list[int]) -> list[int]:
        order: list[int] = []
        seen: set[int] = set()
        expressions, arguments = self.b.expressions, self._arguments
        stack = roots[::-1]
        while stack:
            number = stack.pop()
            if number < 0:  # all that it reads is there
                order.append(~number)
            elif number not in seen:
                seen.add(number)
                stack.append(~number)
                stack += [a for a in reversed(arguments(expressions[number])) if a not in seen]
        return order

    def _access(self, access: int) -> int:
        found = self.access_map.get(access)
        if found is None:
            found = self.access_map[access] = len(self.accesses)
            self.accesses.append(self.b.accesses[access])
        return found

    def _copy(self, number: int) -> None:
        b = self.b
        expression = b.expressions[number]
        kind = expression[0]
        own_cost = b.costs[number]
        for argument in expression_arguments(expression):
            own_cost -= b.costs[argument]
        if kind == "load":
            expression = (kind, self._access(expression[1]), expression[2])
        elif kind == "iota":
            self.iotas.append(b.iotas[expression[1]])
            expression = (kind, len(self.iotas) - 1, expression[2])
        elif kind in ("guarded", "inside"):
            guards = []
            for guard, below in expression[3] if kind == "guarded" else expression[1]:
                if guard not in self.guard_map:
                    self.guard_map[guard] = len(self.iotas)
                    self.iotas.append(b.iotas[guard])
                guards.append((self.guard_map[guard], below))
            if kind == "guarded":
                expression = (kind, self._access(expression[1]), expression[2], tuple(guards))
            else:
                expression = (kind, tuple(guards), expression[2])
        elif kind == "shifted":
            _, access, dtype, moved, guard = expression
            self.iotas.append(b.iotas[guard])
            expression = (kind, self._access(access), dtype, self._access(moved), len(self.iotas) - 1)
        elif kind == "scan":
            _, instruction, dtype, operands, variant = expression
            expression = (kind, instruction, dtype, tuple([self.map[a] for a in operands]), variant)
        elif kind == "op":
            expression = (*expression[:4], tuple([self.map[a] for a in expression[4]]), expression[5])
        elif kind == "check":
            self.checks.append(b.checks[expression[2]])
            expression = (kind, self.map[expression[1]], len(self.checks) - 1)
        elif kind == "lookup":
            terms = []
            for argument, term in expression[3]:
                terms.append((self.map[argument], len(self.terms)))
                self.terms.append(b.terms[term])
            expression = (kind, self._access(expression[1]), expression[2], tuple(terms))
        elif kind == "fold":
            fold = b.folds[expression[1]]
            self.folds.append(Fold(fold.instruction, self.map[fold.argument], fold.dtype, fold.stage))
            expression = (kind, len(self.folds) - 1, expression[2])
        self.map[number] = len(self.expressions)
        self.expressions.append(expression)
        self.costs.append(b.costs[number])
        self.depths.append(b.depths[number])
        self.own_costs.append(own_cost if kind != "fold" else 1.0)


def expression_arguments(expression: Expression) -> tuple[int, ...]:
    """The expressions that this one reads at the same point."""
    kind = expression[0]
    if kind == "op":
        return tuple(expression[4])
    if kind == "scan":
        return tuple(expression[3])
    if kind == "check":
        return (expression[1],)
    if kind == "lookup":
        return tuple([argument for argument, _ in expression[3]])
    return ()


def expression_dtype(expression: Expression) -> str:
    return "int64" if expression[0] == "check" else str(expression[2])
