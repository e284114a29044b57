"""Worked cases of pruned models: every expected value of tests/golden/cases_pruning.yaml."""

from __future__ import annotations

from typing import Any

import pytest

from rooflm.calc.letters import dimensions
from rooflm.calc.model import Model, parameters, token_bytes, total_parameters
from rooflm.calc.passes import BF16
from rooflm.calc.presets import find_model
from rooflm.calc.timing import bandwidth_time

from .golden import table

CASES: dict[str, dict[str, Any]] = {c["id"]: c for c in table("cases_pruning")["cases"]}
Inputs = dict[str, Any]


def pruned(original: str, to: str, more: dict[str, int]) -> Model:
    """Set the width of a pruned preset in its original, and find the same model."""
    preset = find_model(to)
    letters = dimensions(preset)
    dims = {k: letters[k] for k in ("D", "F", "L")} | more
    made = find_model(original, {k: str(v) for k, v in dims.items()})
    assert parameters(made) == parameters(preset)
    assert made.groups == preset.groups
    return made


def narrower(i: Inputs) -> dict[str, Any]:
    """Parameters and cache of a family of widths."""
    models = [find_model(i["original"])]
    models += [pruned(i["original"], name, i["more"].get(name, {})) for name in i["pruned"]]
    found: dict[str, Any] = {}
    for size, model in zip(("15", "8", "4"), models, strict=True):
        found |= {f"p{size}": total_parameters(model), f"kv{size}": token_bytes(model, BF16)}
    tables = parameters(models[1])
    embeddings = tables["embedding"] + tables["head"]
    return found | {
        "weights_ratio_15_8": found["p15"] / found["p8"],
        "embed_share_8b": embeddings / found["p8"],
    }


def faster(i: Inputs) -> dict[str, Any]:
    """Steps at full bandwidth."""
    models = (find_model(i["original"]), pruned(i["original"], i["pruned"], {}))
    before, after = (
        bandwidth_time(2 * total_parameters(m) + i["B"] * i["S"] * token_bytes(m, BF16), i["bw"])
        for m in models
    )
    return {"t15": before, "t8": after, "speedup": before / after}


def shallower(i: Inputs) -> dict[str, Any]:
    """Half of the layers."""
    model = pruned(i["original"], i["pruned"], {"L": i["L"]})
    return {"total": total_parameters(model), "kv_per_token": token_bytes(model, BF16)}


COMPUTE = {
    "t13_minitron": narrower, "t13_minitron_latency": faster, "t13_depth_pruning": shallower,
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_every_expected_value_of_a_pruned_model_is_reproduced(name: str) -> None:
    """The preset, and its original with letters set, have the values of the case."""
    case = CASES[name]
    found = COMPUTE[name](case["inputs"])

    assert found.keys() == case["expected"].keys()
    for key, value in case["expected"].items():
        wanted = value if isinstance(value, int) else pytest.approx(value, rel=1e-9)
        assert found[key] == wanted, key
