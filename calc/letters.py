"""The letters of a model: symbols in place of its numbers, and another number for a letter."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from .errors import RooflmError
from .model import Group, Model, group_names
from .readings import Q, is_zero


def symbolic(model: Model) -> tuple[Model, dict[str, Q]]:
    """Replace the dimensions of a model by symbols, and tell what each stands for.

    Returns the model with sympy Symbols in place of numbers, and a dict of symbol name to number.
    Every function of this package then returns the formula instead of the number. The letters are
    those of docs/nomenclature.md. A letter that differs between groups of layers carries the
    group's name (L_full, L_window); one that is the same in all is plain.
    """
    import sympy

    values: dict[str, Q] = {}
    several = _differing(model)

    def symbol(letter: str, value: Q, suffix: str = "") -> Q:
        if value is None or is_zero(value):
            return value
        name = f"{letter}_{suffix}" if suffix and letter in several else letter
        values[name] = value
        return sympy.Symbol(name, positive=True, integer=True)

    def part(layer: Any, suffix: str) -> Any:
        return _each(
            layer,
            lambda one, field, letter: symbol(letter, getattr(one, field), suffix),
        )

    names = group_names(model)
    groups = tuple(
        replace(
            g,
            count=symbol("L", g.count, name),
            mixer=part(g.mixer, name),
            ffn=part(g.ffn, name),
            copies=symbol("L_s", g.copies, name),
            own=symbol("P_o", g.own, name),
            hosted=symbol("L_h", g.hosted, name),
        )
        for g, name in zip(model.groups, names, strict=True)
    )
    return replace(
        model,
        D=symbol("D", model.D),
        V=symbol("V", model.V),
        positions=symbol("V_pos", model.positions),
        embedding_width=symbol("E_D", model.embedding_width),
        residual=part(model.residual, ""),
        groups=groups,
    ), values


def _each(layer: Any, change: Callable[[Any, str, str], Q]) -> Any:
    """Change the dimensions of a mixer or feed-forward; of two side by side, those of both.

    change: takes the layer, a field of it and the letter of that field.
    """
    pair = getattr(layer, "pair", None)
    if pair is not None:
        first, second = (_each(one, change) for one in pair)
        return replace(layer, first=first, second=second)
    if layer is None:
        return None
    letters: dict[str, str] = layer.LETTERS
    return replace(layer, **{field: change(layer, field, own) for field, own in letters.items()})


def _differing(model: Model) -> set[str]:
    """Name the letters that do not mean the same in all groups; each group counts its own L."""
    meanings: dict[str, set[Q]] = {}
    for group in model.groups:
        for letter, value in _letters(group):
            meanings.setdefault(letter, set()).add(value)
    return {letter for letter, values in meanings.items() if len(values) > 1} | {"L", "L_h"}


def _letters(group: Group) -> Iterator[tuple[str, Q]]:
    yield "L", group.count
    yield from (pair for pair in (("L_s", group.copies), ("P_o", group.own)) if _is_there(pair[1]))
    for layer in (group.mixer, group.ffn):
        yield from _of_layer(layer)


def _of_layer(layer: Any) -> Iterator[tuple[str, Q]]:
    pair = getattr(layer, "pair", None)
    if pair is not None:
        yield from (letter for one in pair for letter in _of_layer(one))
        return
    letters: dict[str, str] = layer.LETTERS
    for field, letter in letters.items():
        value = getattr(layer, field)
        if _is_there(value):
            yield letter, value


def _is_there(value: Q) -> bool:
    return value is not None and not is_zero(value)


def dimensions(model: Model) -> dict[str, Q]:
    """Tell the letters of a model and their numbers: those of the formulas, L of all layers."""
    several = _differing(model)
    found: dict[str, Q] = {"D": model.D}
    for group, name in zip(model.groups, group_names(model), strict=True):
        for letter, value in _letters(group):
            found[f"{letter}_{name}" if name and letter in several else letter] = value
    around = {} if model.residual is None else dict(_of_layer(model.residual))
    return found | around | {"L": model.layers, "V": model.V}


def with_letter(model: Model, letter: str, value: Q) -> Model:
    """Give a dimension another number, in every group that has it under that name.

    letter: as `dimensions` names it; value: the number [1]. Raises `KeyError` for other names.
    """
    if letter == "V":
        return replace(model, V=value)
    if letter == "D":
        model = replace(model, D=value)
    several = _differing(model)

    def own(one: str, now: Q, name: str) -> Q:
        named = f"{one}_{name}" if name and one in several else one
        return value if named == letter and _is_there(now) else now

    def part(layer: Any, name: str) -> Any:
        return _each(layer, lambda one, field, of: own(of, getattr(one, field), name))

    groups = tuple(
        replace(
            g,
            count=value if letter == (f"L_{name}" if name else "L") else g.count,
            mixer=part(g.mixer, name),
            ffn=part(g.ffn, name),
            copies=own("L_s", g.copies, name),
            own=own("P_o", g.own, name),
        )
        for g, name in zip(model.groups, group_names(model), strict=True)
    )
    residual = part(model.residual, "")
    changed = replace(model, groups=groups, residual=residual)
    if letter != "D" and changed == model and value != dimensions(model)[letter]:
        raise KeyError(letter)
    return changed


def layer_step(model: Model) -> int:
    """Tell the fewest layers in which each group has its share, in whole layers [1]."""
    return model.layers // math.gcd(*(g.count for g in model.groups))


def with_layers(model: Model, L: int) -> Model:
    """Give a model another depth: each group of layers keeps its share, in whole layers.

    L: layers of all groups [1]. Raises `RooflmError` where a group would be cut in parts, or where
    fewer layers would be left than sets of weights that they share.
    """
    step, names = layer_step(model), group_names(model)
    if L % step:
        pairs = list(zip(names, (g.count for g in model.groups), strict=True))
        below = L // step * step
        near = " or ".join(str(n) for n in (below, below + step) if n)
        only = f"a multiple of {step}" if step == model.layers else near
        what = (
            f"{L} layers cannot be shared out as the {model.layers} are "
            f"({', '.join(f'{count} {name}' for name, count in pairs)})"
        )
        largest = max(pairs, key=lambda pair: pair[1])[0]
        raise RooflmError(what, "", f"L may be {only}; --set L_{largest} changes one group.")
    groups = tuple(replace(g, count=g.count * L // model.layers) for g in model.groups)
    for g in groups:
        if g.copies is not None and g.copies > g.count:
            what = f"{g.copies} sets of weights are more than the layers that share them, {g.count}"
            raise RooflmError(what, "", "Set L_s as well, or more layers.")
    return replace(model, groups=groups)
