"""Expressions compiled to straight-line programs over registers, and run on one batch at a time.

Compilation folds constants and gives equal subexpressions one register, also across the expressions of one projection.
Errors are values, so nothing needs to be skipped: both branches of a CASE are computed and the unused error is dropped.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from belvedere.engine.expr import literal
from belvedere.engine.expr.functions import FUNCTIONS
from belvedere.engine.expr.operand import Const, Function, Operand, ints_of, spread
from belvedere.engine.vec import Vec, empty
from belvedere.sql.expr import Call, ColumnRef, Expr, Literal
from belvedere.types import Type


@dataclass(slots=True)
class Program:
    """Registers are filled in order: constants at compile time, then columns, then steps."""

    types: tuple[Type, ...]
    outputs: tuple[int, ...]
    registers: list[Operand | None]
    inputs: list[tuple[int, int]] = field(default_factory=list)
    steps: list[tuple[Function, Type, tuple[int, ...], int]] = field(default_factory=list)

    def run(self, columns: Sequence[Vec], count: int) -> tuple[Vec, ...]:
        """One column per compiled expression. Plain column references are returned as they are, not copied."""
        if count == 0:
            return tuple(empty(type) for type in self.types)
        registers: list[Operand] = self.registers.copy()  # type: ignore[assignment]  # None only before it is filled
        for register, index in self.inputs:
            registers[register] = columns[index]
        for function, type, args, register in self.steps:
            registers[register] = function(type, [registers[a] for a in args], count)
        return tuple([spread(registers[o], count) for o in self.outputs])


class _Compiler:
    def __init__(self) -> None:
        self.program = Program((), (), [])
        self.known: dict[Hashable, int] = {}

    def register(self, operand: Operand | None) -> int:
        self.program.registers.append(operand)
        return len(self.program.registers) - 1

    def visit(self, expr: Expr) -> int:
        program = self.program
        key: Hashable
        match expr:
            case ColumnRef(index, type):
                key = ("column", index)
                if key not in self.known:
                    self.known[key] = self.register(None)
                    program.inputs.append((self.known[key], index))
            case Literal(value, type):
                key = expr
                if key not in self.known:
                    self.known[key] = self.register(literal.const_of(value, type))
            case Call(name, args, type):
                registers = tuple(self.visit(a) for a in args)
                key = ("call", name, registers, type)
                if key not in self.known:
                    self.known[key] = self.call(FUNCTIONS[name], type, registers)
        return self.known[key]

    def call(self, function: Function, type: Type, args: tuple[int, ...]) -> int:
        operands = [self.program.registers[a] for a in args]
        constants = [o for o in operands if isinstance(o, Const)]
        if len(constants) == len(operands):
            return self.register(_fold(function(type, constants, 1)))
        register = self.register(None)
        self.program.steps.append((function, type, args, register))
        return register


def _fold(result: Operand) -> Const:
    if isinstance(result, Const):
        return result
    status = 1 if result.status is None else int(result.status[0])
    if status != 1:
        return Const(result.type, None, status)
    if isinstance(result.data, pa.Array):
        return Const(result.type, result.data[0].as_py())
    if result.type.wide:
        return Const(result.type, ints_of(result.data)[0])
    return Const(result.type, result.data[0].item())


def compile_exprs(exprs: Sequence[Expr]) -> Program:
    """A program that computes all of these expressions over one input."""
    compiler = _Compiler()
    outputs = tuple(compiler.visit(e) for e in exprs)
    program = compiler.program
    program.types, program.outputs = tuple(e.type for e in exprs), outputs
    return program


# Keyed by identity, since hashing a tree per batch would cost more than a comparison of 10,000 rows; the expression is
# kept beside its program so that its id cannot be taken by another one.
_PROGRAMS: dict[int, tuple[Expr, Program]] = {}
_MAX_PROGRAMS = 4096


def evaluate(expr: Expr, columns: Sequence[Vec], count: int) -> Vec:
    """The value of one expression for each of `count` rows."""
    entry = _PROGRAMS.get(id(expr))
    if entry is None or entry[0] is not expr:
        if len(_PROGRAMS) >= _MAX_PROGRAMS:
            _PROGRAMS.clear()
        entry = _PROGRAMS[id(expr)] = (expr, compile_exprs((expr,)))
    return entry[1].run(columns, count)[0]


def evaluate_all(exprs: Sequence[Expr], columns: Sequence[Vec], count: int) -> tuple[Vec, ...]:
    """Several expressions over one input, uncached; for repeated use keep the result of `compile_exprs`."""
    return compile_exprs(exprs).run(columns, count)
