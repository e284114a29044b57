"""Sizes a server in Python; docs/python.md shows it with what it prints."""

# %% A model and a machine
# A preset's name is enough wherever a model or a machine is asked for. `model` and `machine` make
# them of files and of plain data as well: an entry of a YAML file, or a config.json.
from rooflm.calc import machine, model

llama = model("llama-3-8b")
h100 = machine("h100-sxm")
print(llama.layers, "layers;", h100.bandwidth_bytes_per_s / 1e12, "TB/s")

own = model(
    {
        "dims": {"D": 2048, "L": 24, "N": 16, "K": 4, "H": 128, "F": 8192, "V": 64000},
        "tied": True,
    },
    name="own-1b",
)
config = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 2048,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "intermediate_size": 8192,
    "vocab_size": 64000,
    "tie_word_embeddings": True,
}
print(own.groups == model(config).groups)

# %% Does it fit, and how fast is one step
# Answers are plain dicts with the keys of `--format json`, in SI units. Options are keywords,
# numbers are seconds and bytes, and texts are read as the command line reads them.
from rooflm.calc import fit, sweep

answer = fit(llama, h100, batch=64, context="8Ki")
print(answer["fits"])

row = sweep(llama, h100, batch=64, context=8192)["rows"][0]
for key in ("memory_bytes", "bound_s", "estimate_s", "tokens_per_s", "regime"):
    print(key, row[key])

# %% A grid of batches and contexts
# `grid` gives arrays of shape (batches, contexts): here the most tokens a second among what fits
# with steps of at most 15 ms.
import numpy as np

from rooflm.calc import case, grid

llama_on_h100 = case(llama, h100)
batch = np.arange(1, 257)
context = np.array([1024, 8192])
figures = grid(llama_on_h100, batch, context)
good = figures["fits"] & (figures["time_s"] <= 0.015)
rate = np.where(good, figures["tokens_per_s"], 0)
for j, tokens in enumerate(context):
    i = rate[:, j].argmax()
    print(f"context {tokens}: batch {batch[i]}, {rate[i, j]:,.0f} tokens/s")

# %% Which batches no other beats
# Latency against the price of a token, on two machines: a step is of use where every quicker one of
# the other machine is dearer.
names = ("h200-sxm", "h100-sxm")
seconds: dict[str, np.ndarray] = {}
dollars: dict[str, np.ndarray] = {}
for name in names:
    figures = grid(case(llama, name), batch, 1024)
    rent = machine(name).price_usd_per_hour or float("nan")
    seconds[name] = figures["time_s"][:, 0]
    dollars[name] = 1e6 * rent / 3600 / figures["tokens_per_s"][:, 0]
for name, other in (names, names[::-1]):
    quicker = seconds[other] <= seconds[name][:, None]
    beaten = quicker & (dollars[other] <= dollars[name][:, None])
    front = batch[~beaten.any(axis=1)]
    print(f"{name}: batches {front.min()} to {front.max()}")

# %% The formula behind a figure
# `formulas` gives the same figures as sympy expressions in the batch B, the context S and the
# letters of the model, and what the letters stand for.
from collections.abc import Callable
from typing import cast

import sympy

from rooflm.calc import formulas

found, values = formulas(case("llama-2-13b", "h100-sxm", accounting="lecture"))
B, S = sympy.symbols("B S", positive=True, integer=True)
time = found["time_s"].subs(values)
print(found["kv_cache_bytes"])
print(found["kv_cache_bytes"].diff(S))
print(round(1 / time.diff(B).subs(S, 1024)), "tokens/s, however large the batch")
quick = cast("Callable[..., np.ndarray]", sympy.lambdify((B, S), time, "numpy"))
print(quick(np.array([1, 64, 256]), 1024))

# %% What if
# Other dimensions, formats and machines that do not exist are options.
for change in ({"K": 32}, {"K": 8}, {"K": 1}):
    row = sweep(llama, h100, batch=64, context=8192, set=change)["rows"][0]
    print(change, f"{row['memory_bytes'] / 1e9:.1f} GB", f"{1e3 * row['bound_s']:.2f} ms")
row = sweep(llama, machine(h100, scale={"bandwidth": 2}), batch=64, context=8192)["rows"][0]
print("twice the bandwidth", f"{1e3 * row['bound_s']:.2f} ms")

# %% Live traffic
# What users wait for when requests come at random; the seed is fixed, so that answers repeat.
from rooflm.calc import serve

served = serve(llama, h100, rate=8, prompt=512, output_tokens=128, requests=400, replications=1)
for key in ("ttft_s", "itl_s"):
    print(key, {name: round(served[key][name], 4) for name in ("p50", "p99")})

# %% A figure
# `draw` takes any answer that its kind belongs to and returns a figure of matplotlib, for its
# `savefig` or for `rooflm.plots.style.save`, which writes the same file each time.
from rooflm.plots.kinds import draw

drawing = draw("sweep", sweep(llama, h100, batch="1:256:x2", context=[1024, 8192]))
print(type(drawing).__name__, len(drawing.axes), "axes")

# %% Mistakes
# Whatever is wrong with a question raises `RooflmError`: what, where, and how to mend it. Options
# are named as the command line spells them.
from rooflm.calc import RooflmError

try:
    sweep("llama-3-8b", "h100-smx")
except RooflmError as error:
    print(error)
