"""Exceptions at chosen moments of a call: before the n-th bytecode, from another thread, or by a real signal.

The tracer can raise before any bytecode, also where the interpreter itself never looks for interrupts. A few
instructions are left out for that reason: those between the end of a `with` block (its value, if it returns one, is put
aside first) and its `__exit__`. CPython raises interrupts after calls, at the start of functions and where loops go
back, so a lock in `with` is always given back; a tracer would break that for every Python program.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from functools import cache
from types import CodeType, FrameType
from typing import Any


class Injected(BaseException):
    """Like KeyboardInterrupt: nobody expects it."""


@cache
def _leaving_with(code: CodeType) -> frozenset[int]:
    """Offsets of the instructions that call `__exit__` after a block ended normally."""
    found: set[int] = set()
    last: list[dis.Instruction] = []
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("CACHE", "PRECALL"):
            continue
        last = [*last[-4:], instruction]
        nones = [i for i in last[-4:-1] if i.opname == "LOAD_CONST" and i.argval is None]
        if len(last) >= 4 and len(nones) == 3 and instruction.opname == "CALL" and instruction.arg == 2:
            first = last[0] if len(last) == 5 and last[0].opname == "SWAP" else last[-4]
            found.update(range(first.offset, instruction.offset + 1, 2))
    return frozenset(found)


@cache
def _looking(code: CodeType) -> frozenset[int]:
    """Offsets before which CPython looks for interrupts: behind calls, at the start, and where loops go back."""
    found: set[int] = set()
    before = ""
    for instruction in dis.get_instructions(code):
        if instruction.opname == "CACHE":
            continue
        if before.startswith("CALL") or instruction.opname in ("RESUME", "JUMP_BACKWARD"):
            found.add(instruction.offset)
        before = instruction.opname
    return frozenset(found)


class Injector:
    """Counts bytecodes of one call in this thread and raises before the one that was chosen. `real`: counts only those
    before which the interpreter itself would raise. `spared`: files whose code is left alone."""

    def __init__(self, at: int | None = None, *, real: bool = False, spared: tuple[str, ...] = ()):
        self._at, self._real, self._spared, self.count, self.where = at, real, spared, 0, ""

    def run(self, call: Callable[[], Any]) -> Any:
        """The call's result; `Injected` if its moment came."""
        code = call.__code__
        before = sys.gettrace()
        sys.settrace(lambda frame, event, arg: self._enter(frame, code))
        try:
            return call()
        finally:
            sys.settrace(before)

    def _enter(self, frame: FrameType, outermost: CodeType) -> Any:
        if frame.f_code is outermost or frame.f_code.co_filename.endswith((__file__, *self._spared)):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._step

    def _step(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "opcode" and frame.f_lasti not in _leaving_with(frame.f_code):
            self.count += not self._real or frame.f_lasti in _looking(frame.f_code)
            if self.count == self._at and not self.where:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
                sys.settrace(None)
                raise Injected(self.where)
        return self._step
