"""Mutation tests: change one thing in a formula module and see whether a test notices.

    python benchmarks/mutants.py attention mla --most 60

Each change runs the tests of its module in a forked child, where the module is made of the changed
text. What survives is printed; docs/mutants.md explains the survivors that are left. A module with
more changes than `--most` is sampled, by a fixed seed.
"""

from __future__ import annotations

import argparse
import ast
import doctest
import gc
import importlib
import importlib.util
import os
import random
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from types import CodeType
from typing import Any, cast

import hypothesis
import numpy
import pytest
import sympy
import typer
import yaml

LIBRARIES = numpy, sympy, typer, yaml  # imported once, before the children
CALC = Path(__file__).resolve().parents[1] / "calc"
LAYERS = (
    "operators cases cases_layers models lecture layers readings transformers_states "
    "transformers::test_scales_belong_to_the_outputs_of_the_class"
)
TESTS = {
    "timing": "cases cases_layers lecture offload readings estimate",
    "memory": "operators cases lecture prefix_sharing engine_memory plan",
    "sharing": "operators prefix_sharing",
    "weights": "operators models formats quantized_models adapters",
    "formats": "formats cases quantize quantized_models",
    "layout": "layout collectives plan",
    "communication": "collectives layout deployment",
    "cost": "cases_cost plan",
    "cache_groups": "engine_memory",
    "diffusion": "cases_layers layers",
    "prune": "prune cases_pruning",
}
"""Tests of a module, quick ones with values of others first. Else test_MODULE.py, or LAYERS."""
SWAPS: dict[Any, Any] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
PAIRS = {"minimum": "maximum", "min": "max", "floor": "ceil", "any": "all", "widest": "total"}
CALLS = PAIRS | {new: old for old, new in PAIRS.items()}
SYMMETRIC = {*CALLS, "isinstance", "matmul_flops", "mla_cache_elements"}
UNTOUCHED = {"annotation", "returns", "decorator_list", "exc", "msg", "unusual", "told", "remarks"}
"""Fields of a syntax tree that compute nothing, and functions that only say something."""


def alternatives(node: ast.AST) -> Iterator[Any]:
    """List what may stand in place of a node: another operator, bound, number, arm or argument."""
    match node:
        case ast.BinOp(left, op, right) if type(op) in SWAPS:
            yield ast.BinOp(left, SWAPS[type(op)](), right)
            yield from [left, right] if isinstance(op, ast.Add) else []
            yield from [left] if isinstance(op, ast.Sub) else []
        case ast.AugAssign(target, op, value) if type(op) in SWAPS:
            yield ast.AugAssign(target, SWAPS[type(op)](), value)
        case ast.BoolOp(op, values):
            yield ast.BoolOp(SWAPS[type(op)](), values)
        case ast.Compare(left, [op, *rest], others):
            yield ast.Compare(left, [SWAPS[type(op)](), *rest], others)
        case ast.Constant(bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(int(value) | float(value)):
            yield from (ast.Constant(value + 1), ast.Constant(value - 1))
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            yield operand
        case ast.IfExp(_, body, orelse):
            yield from (body, orelse)
        case ast.If(test, body, orelse):
            yield ast.If(ast.UnaryOp(ast.Not(), test), body, orelse)
        case ast.comprehension(target, values, [_, *rest], is_async):
            yield ast.comprehension(target, values, rest, is_async)
        case ast.Call(function, args, keywords):
            name = ast.unparse(function)
            if name in CALLS:
                yield ast.Call(ast.Name(CALLS[name], ast.Load()), args, keywords)
            for i, pair in enumerate(pairwise(args)):
                names = all(isinstance(x, ast.Name | ast.Attribute) for x in pair)
                if names and name not in SYMMETRIC:
                    swapped = [*args[:i], *pair[::-1], *args[i + 2 :]]
                    yield ast.Call(function, swapped, keywords)
            for i in range(len(keywords)):
                yield ast.Call(function, args, keywords[:i] + keywords[i + 1 :])
        case _:
            pass


def places(node: ast.AST) -> Iterator[tuple[Any, Any, ast.AST]]:
    """Walk over what a module computes: where each node hangs, and the node."""
    for name, value in ast.iter_fields(node):
        if UNTOUCHED & {name, getattr(node, "name", "")} or isinstance(node, ast.JoinedStr):
            continue
        children = cast("list[Any]", value if isinstance(value, list) else [value])
        for i, child in enumerate(children):
            if isinstance(child, ast.AST):
                yield (children, i, child) if children is value else (vars(node), name, child)
                yield from places(child)


def test(module: str, code: CodeType, tests: Sequence[str]) -> None:
    """Make a module of other code, and run its examples and tests; leave with their exit status."""
    package, name = importlib.import_module("rooflm.calc"), f"rooflm.calc.{module}"
    spec = importlib.util.spec_from_file_location(name, CALC / f"{module}.py")
    assert spec
    changed = sys.modules[name] = importlib.util.module_from_spec(spec)
    setattr(package, module, changed)
    exec(code, vars(changed))
    phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
    hypothesis.settings.register_profile("m", derandomize=True, database=None, phases=phases)
    hypothesis.settings.load_profile("m")
    if doctest.testmod(changed).failed:
        os._exit(1)
    options = (
        "-xq -p no:cacheprovider --disable-plugin-autoload --import-mode=importlib -o addopts="
    )
    os._exit(pytest.main([*options.split(), "-oaddopts=", *tests]))


def passes(module: str, code: CodeType, tests: Sequence[str], limit_s: float) -> bool:
    """Tell whether all tests of a module pass in a child where it is made of other code."""
    child = os.fork()
    if not child:
        try:
            os.setsid()
            for stream in (1, 2):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
            test(module, code, tests)
        finally:
            os._exit(3)
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.01)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def main() -> None:
    """Run the changes of each module that is named and print those that no test noticed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("modules", nargs="+")
    parser.add_argument("--most", type=int, default=60, help="changes of a module")
    parser.add_argument("--tests", help="files or functions of tests in place of the usual ones")
    typed = parser.parse_args()
    gc.freeze()  # the children need not look through what was there before
    for module in typed.modules:
        own = CALC.parent / "tests" / f"test_{module}.py"
        usual = TESTS.get(module, module if own.exists() else LAYERS)
        tests = [
            f"{CALC.parent}/tests/test_{file}.py{sep}{name}"
            for file, sep, name in (word.partition("::") for word in (typed.tests or usual).split())
        ]
        start, tree = time.monotonic(), ast.parse((CALC / f"{module}.py").read_text())
        if not passes(module, compile(tree, f"{module}.py", "exec"), tests, 600):
            raise SystemExit(f"{module}: its tests fail without a change")
        limit_s = 10 + 3 * (time.monotonic() - start)
        changes = [(*place, new) for place in places(tree) for new in alternatives(place[2])]
        made = sorted(random.Random(0).sample(range(len(changes)), min(typed.most, len(changes))))
        survived = 0
        for holder, key, old, new in (changes[i] for i in made):
            holder[key] = new
            code = compile(ast.fix_missing_locations(tree), f"{module}.py", "exec")
            if passes(module, code, tests, limit_s):
                survived += 1
                texts = [ast.unparse(x).partition("\n")[0] for x in (old, new)]
                where = f"calc/{module}.py:{getattr(old, 'lineno', '?')}:"
                print(where, *texts, sep="\n    ", flush=True)
            holder[key] = old
        print(f"{module}: {len(made)} of {len(changes)} changes, {survived} survived", flush=True)


if __name__ == "__main__":
    main()
