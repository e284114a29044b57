"""Number formats: what a weight takes in memory with its scales, and what multiplies it.

Bytes are a function of a matrix's rows and columns, not of a nominal number of bits. A matrix of
`rows` inner width and `columns` outputs multiplies X[., rows] to [., columns]; groups run along its
rows, channels are its columns.

Sources: Open Compute Project, Microscaling Formats v1.0 (mxfp4, mxfp8: 32 numbers and a power of
two); docs.nvidia.com, cuTile, NVFP4 (9 bytes for 16 numbers); arxiv.org/abs/2412.19437, section 3.3
(fp8 in tiles of 128 x 128); github.com/vllm-project/vllm, quantization/awq.py and gptq.py (what
AWQ and GPTQ checkpoints hold); arxiv.org/abs/2305.14314, section 3 (nf4 and its double
quantization) and github.com/bitsandbytes-foundation/bitsandbytes, functional.py; arxiv.org/abs/
2208.07339 (LLM.int8); github.com/ggml-org/llama.cpp, ggml/src/ggml-common.h (blocks),
src/llama-quant.cpp (mixtures) and tools/quantize/README.md (bits measured on Llama-3.1-8B).
Left out: padding of matrices to tiles of kernels, tables of constants (the 16 numbers of nf4).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from .errors import RooflmError, nearest
from .readings import Q, ceil, ratio

Covers = Literal["all", "matrices", "linear", "experts"]
"""What a format is used for unless it is said otherwise: every weight; every matrix, embedding and
head among them; the matrices of the layers, without router, embedding and head; experts alone."""


@dataclass(frozen=True)
class Format:
    """A number format of weights, caches or states."""

    name: str
    bits: Q
    """Bits of one number."""
    compute: str = ""
    """Format whose peak rate multiplies such numbers; that of the activations where it is ""."""
    covers: Covers = "linear"
    group: int = 0
    """Rows of a column that share a scale; 0 where there are no groups."""
    group_bits: Q = 0
    """Scale and zero of a group [bits]."""
    column_bits: Q = 0
    """Scale of a column [bits]."""
    row_bits: Q = 0
    """What is kept of a row: the group that it belongs to [bits]."""
    tile: int = 0
    """Side of square tiles that share a scale; 0 where there are none."""
    tile_bits: Q = 0
    """Scale of a tile [bits]."""
    matrix_bits: Q = 0
    """Scale of a whole matrix [bits]."""
    scale_group: int = 0
    """Groups of a matrix whose scales share a scale of their own; 0 where they have none."""
    scale_group_bits: Q = 0
    """Scale of such scales [bits]."""
    stores: str = ""
    """What lies beside the numbers, in words."""

    @property
    def bytes(self) -> Q:
        """Bytes of one number without scales [B]."""
        return ratio(self.bits, 8)

    def matrix_bytes(self, rows: Q, columns: Q) -> Q:
        """Bytes of a matrix with all its scales [B].

        rows: inner width [1]; columns: outputs [1].

        >>> FORMATS["awq"].matrix_bytes(4096, 4096)
        8716288
        """
        scales = self._scale_bits(rows, columns)
        if isinstance(scales, int) and scales == 0:
            return self.bytes * (rows * columns)
        return ratio(self.bits * (rows * columns) + scales, 8)

    def real_bits(self, rows: Q, columns: Q) -> Q:
        """Bits of one number of a matrix, its share of all scales included [bits].

        rows: inner width [1]; columns: outputs [1].

        >>> FORMATS["awq"].real_bits(4096, 4096)
        4.15625
        """
        return 8 * self.matrix_bytes(rows, columns) / (rows * columns)

    def _scale_bits(self, rows: Q, columns: Q) -> Q:
        scales: Q = 0
        if self.group:
            groups = ceil(rows / self.group) * columns
            scales += self.group_bits * groups
            if self.scale_group:
                scales += self.scale_group_bits * ceil(groups / self.scale_group)
        if self.column_bits:
            scales += self.column_bits * columns
        if self.row_bits:
            scales += self.row_bits * rows
        if self.tile:
            scales += self.tile_bits * ceil(rows / self.tile) * ceil(columns / self.tile)
        if self.matrix_bits:
            scales += self.matrix_bits
        return scales


def _more(layer: int, layers: int) -> bool:
    """Tell whether llama.cpp spends more bits on a layer: the outer eighths, and each third."""
    eighth = layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2


_PLACES: dict[str, Callable[[int, int, float], bool]] = {
    "all": lambda layer, layers, sharing: True,
    "more": lambda layer, layers, sharing: _more(layer, layers),
    "first 2": lambda layer, layers, sharing: layer < 2,
    "first 4": lambda layer, layers, sharing: layer < 4,
    "first eighth": lambda layer, layers, sharing: layer < layers // 8,
    "first sixteenth": lambda layer, layers, sharing: layer < layers // 16,
    "sharing": lambda layer, layers, sharing: sharing >= 4,
}
"""Where a mixture raises a tensor, by layer, layers and query heads of a key head."""

_VALUES = ("attn_v", "attn_qkv", "attn_kv_b")
"""Tensors that llama.cpp treats as values; a fused projection is one."""

_NARROW = {"q2_k": "q4_0", "q3_k": "q4_0", "q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0"}
"""Blocks of 32 in place of those of 256, for rows that 256 does not divide."""


@dataclass(frozen=True)
class Mixture(Format):
    """A llama.cpp file type: one block type, and others for tensors that matter more.

    `bits` is an estimate for all matrices alike: the bits per weight of the whole file that
    llama.cpp's tools/quantize/README.md measures on Llama-3.1-8B, norms in fp32 included. A model
    with a larger share of embeddings, or with other heads, comes out differently; `tensor_format`
    is the rule itself (src/llama-quant.cpp, llama_tensor_get_type_impl), exact for any model but
    Falcon. On Llama-3.1-8B it gives the measured bits in all their digits.
    """

    base: str = ""
    """Block type of what nothing raises."""
    raised: tuple[tuple[str, str, str], ...] = ()
    """Tensor, where, and its block type; the first that holds decides. attn_v stands for fused
    projections and for the one of latents as well."""

    def tensor_format(
        self,
        tensor: str,
        layer: int = 0,
        layers: int = 1,
        *,
        sharing: float = 1,
        experts: int = 0,
        tied: bool = False,
        rows: int = 256,
    ) -> Format:
        """Tell the block type of a matrix, by its name in a GGUF file: attn_v, ffn_down, output.

        layer, layers: which of how many [1]; sharing: query heads of a key head [1]; experts: of a
        layer [1]; tied: the embedding is the head; rows: inner width [1]. Norms and routers are in
        fp32 in every file and are not asked for.

        >>> MIXTURES["q4_k_m"].tensor_format("ffn_down", 0, 32).name
        'q6_k'
        """
        block = self._block(tensor, layer, layers, sharing, experts, tied)
        if rows % FORMATS[block].group:
            block = _NARROW.get(block, block)
        if rows % FORMATS[block].group:
            return FORMATS["fp16"]
        return FORMATS[block]

    def _block(
        self, tensor: str, layer: int, layers: int, sharing: float, experts: int, tied: bool
    ) -> str:
        if tensor == "output" or (tied and tensor == "token_embd"):
            return "q6_k"
        values = tensor in _VALUES
        if experts == 8:
            # Eight experts dwarf the attention of their layer, so it costs little to spare it.
            if values or tensor == "attn_k":
                return "q8_0"
            if tensor == "attn_output":
                return "q5_k" if self.name in _EIGHT_EXPERTS else self.base
        asked = "attn_v" if values else tensor
        found = (
            block
            for name, where, block in self.raised
            if name == asked and _PLACES[where](layer, layers, sharing)
        )
        block = next(found, self.base)
        # Of 80 layers: the 70B models, where eight query heads share a small value projection.
        return "q5_k" if values and layers == 80 and block in ("q3_k", "q4_k") else block

    def mean_bits(
        self,
        tensor: str,
        layers: int,
        *,
        sharing: float = 1,
        experts: int = 0,
        tied: bool = False,
        rows: int = 256,
    ) -> float:
        """Bits per weight of a matrix that every layer has, over all layers [bits].

        The arguments are those of `tensor_format`.

        >>> MIXTURES["q4_k_m"].mean_bits("ffn_down", 32, sharing=4)
        5.53125
        """
        each = (
            self.tensor_format(
                tensor, layer, layers, sharing=sharing, experts=experts, tied=tied, rows=rows
            ).real_bits(rows, 1)
            for layer in range(layers)
        )
        return sum(each) / layers


_EIGHT_EXPERTS = ("q2_k-file", "q3_k_s", "q3_k_m", "q4_k_s", "q4_k_m")
"""Mixtures that raise the output projection beside eight experts."""


def _block(name: str, bits: int, elements: int, bytes: int, stores: str) -> Format:
    """Describe a GGUF block type by its elements and bytes; what is not numbers is scales."""
    scales = 8 * bytes - bits * elements
    return Format(
        name, bits, covers="matrices", group=elements, group_bits=scales, stores=stores
    )  # fmt: skip


def _measured(name: str, bits: float) -> Format:
    """Describe a llama.cpp file type by the bits that were measured, for all matrices alike."""
    return Format(name, bits, covers="matrices", stores="mixture, measured on Llama-3.1-8B")


def _mixture(name: str, bits: float, base: str, *raised: tuple[str, str, str]) -> Mixture:
    stores = f"mixture on {base}, measured on Llama-3.1-8B"
    return Mixture(name, bits, covers="matrices", stores=stores, base=base, raised=raised)


_ALL = (
    Format("fp32", 32, "fp32", "all"),
    Format("tf32", 32, "tf32", "all", stores="nothing: fp32 in memory, 19 bits in the multiplier"),
    Format("bf16", 16, "bf16", "all"),
    Format("fp16", 16, "fp16", "all"),
    Format("fp8", 8, "fp8", matrix_bits=32, stores="fp32 scale of the matrix; numbers e4m3"),
    Format("fp8-block", 8, "fp8", tile=128, tile_bits=32, stores="fp32 scale of 128 x 128 numbers"),
    Format("int8", 8, "int8", matrix_bits=32, stores="fp32 scale of the matrix"),
    Format("int8-channel", 8, "int8", column_bits=32, stores="fp32 scale of a column (output)"),
    Format("int8-weights", 8, column_bits=32,
           stores="fp32 scale of a column (output), as LLM.int8 does"),
    Format("int4", 4, group=128, group_bits=16, stores="fp16 scale of 128 rows, no zero"),
    Format("int4-g32", 4, group=32, group_bits=32, stores="fp16 scale and fp16 zero of 32 rows"),
    Format("int4-sym-g32", 4, group=32, group_bits=16, stores="fp16 scale of 32 rows, no zero"),
    Format("int3", 3, group=128, group_bits=19, stores="fp16 scale and 3-bit zero of 128 rows"),
    Format("awq", 4, group=128, group_bits=20, stores="fp16 scale and 4-bit zero of 128 rows"),
    Format("gptq", 4, group=128, group_bits=20, row_bits=32,
           stores="fp16 scale and 4-bit zero of 128 rows; 32-bit group number of each row"),
    Format("nf4", 4, group=64, group_bits=32, stores="fp32 largest magnitude of 64 rows"),
    Format("nf4-double", 4, group=64, group_bits=8, scale_group=256, scale_group_bits=32,
           matrix_bits=32,
           stores="8-bit magnitude of 64 rows; fp32 scale of 256 of those; fp32 mean of all"),
    Format("mxfp4", 4, group=32, group_bits=8, stores="power of two (e8m0) of 32 rows"),
    Format("mxfp8", 8, "fp8", group=32, group_bits=8, stores="power of two (e8m0) of 32 rows"),
    Format("nvfp4", 4, "fp4", group=16, group_bits=8, matrix_bits=32,
           stores="e4m3 scale of 16 rows; fp32 scale of the matrix"),
    # GGUF: bits of the codes, elements of a block, bytes of a block. q8_1 is absent: it is how
    # kernels hold activations and lies in no file.
    _block("q1_0", 1, 128, 18, "fp16 scale of 128"),
    _block("q4_0", 4, 32, 18, "fp16 scale of 32"),
    _block("q4_1", 4, 32, 20, "fp16 scale and minimum of 32"),
    _block("q5_0", 5, 32, 22, "fp16 scale of 32"),
    _block("q5_1", 5, 32, 24, "fp16 scale and minimum of 32"),
    _block("q8_0", 8, 32, 34, "fp16 scale of 32"),
    _block("q2_k", 2, 256, 84, "4-bit scale and minimum of 16; fp16 of both for 256"),
    _block("q3_k", 3, 256, 110, "6-bit scale of 16; fp16 scale of 256"),
    _block("q4_k", 4, 256, 144, "6-bit scale and minimum of 32; fp16 of both for 256"),
    _block("q5_k", 5, 256, 176, "6-bit scale and minimum of 32; fp16 of both for 256"),
    _block("q6_k", 6, 256, 210, "8-bit scale of 16; fp16 scale of 256"),
    _block("q8_k", 8, 256, 292, "fp32 scale of 256; 16-bit sums of 16"),
    _block("iq1_s", 1, 256, 50, "grid of 8 numbers; 3-bit scale of 32; fp16 scale of 256"),
    _block("iq1_m", 1, 256, 56, "grid of 8 numbers; 3-bit scale of 16; fp16 scale of 256"),
    _block("iq2_xxs", 2, 256, 66, "grid of 8 numbers, signs and scales; fp16 scale of 256"),
    _block("iq2_xs", 2, 256, 74, "grid of 8 numbers; 4-bit scale of 16; fp16 scale of 256"),
    _block("iq2_s", 2, 256, 82, "grid of 8 numbers; 4-bit scale of 16; fp16 scale of 256"),
    _block("iq3_xxs", 3, 256, 98, "grid of 4 numbers, signs and scales; fp16 scale of 256"),
    _block("iq3_s", 3, 256, 110, "grid of 4 numbers; 4-bit scale of 32; fp16 scale of 256"),
    _block("iq4_nl", 4, 32, 18, "fp16 scale of 32; uneven steps"),
    _block("iq4_xs", 4, 256, 136, "6-bit scale of 32; fp16 scale of 256; uneven steps"),
    _block("tq1_0", 1, 256, 54, "five ternary numbers in a byte; fp16 scale of 256"),
    _block("tq2_0", 2, 256, 66, "ternary numbers in two bits; fp16 scale of 256"),
    # llama.cpp file types. The README's table has Q4_K_S twice and lacks Q3_K_M: that one is what
    # the rule gives for the same model.
    _mixture("q2_k-file", 3.1593, "q2_k", ("attn_v", "sharing", "q4_k"), ("attn_v", "all", "q3_k"),
             ("ffn_down", "all", "q3_k"), ("attn_output", "all", "q3_k")),
    _mixture("q2_k_s", 2.9697, "q2_k", ("attn_v", "sharing", "q4_k"),
             ("ffn_down", "first eighth", "q4_k")),
    _mixture("q3_k_s", 3.6429, "q3_k"),
    _mixture("q3_k_m", 3.9960, "q3_k", ("attn_v", "first 2", "q5_k"), ("attn_v", "all", "q4_k"),
             ("ffn_down", "first sixteenth", "q5_k"), ("ffn_down", "all", "q4_k"),
             ("attn_output", "all", "q4_k")),
    _mixture("q3_k_l", 4.2979, "q3_k", ("attn_v", "all", "q5_k"), ("ffn_down", "all", "q5_k"),
             ("attn_output", "all", "q5_k")),
    _mixture("q4_k_s", 4.6672, "q4_k", ("attn_v", "first 4", "q5_k"),
             ("ffn_down", "first eighth", "q5_k")),
    _mixture("q4_k_m", 4.8944, "q4_k", ("attn_v", "more", "q6_k"), ("ffn_down", "more", "q6_k")),
    _mixture("q5_k_s", 5.5704, "q5_k"),
    _mixture("q5_k_m", 5.7036, "q5_k", ("attn_v", "more", "q6_k"), ("ffn_down", "more", "q6_k")),
    _measured("iq1_s-file", 2.0042), _measured("iq1_m-file", 2.1460),
    _measured("iq2_xxs-file", 2.3824), _measured("iq2_xs-file", 2.5882),
    _measured("iq2_s-file", 2.7403), _measured("iq2_m", 2.9294),
    _measured("iq3_xxs-file", 3.2548), _measured("iq3_xs", 3.4977),
    _measured("iq3_s-file", 3.6606), _measured("iq3_m", 3.7628),
    _measured("iq4_xs-file", 4.4597), _measured("iq4_nl-file", 4.6818),
)  # fmt: skip

FORMATS: dict[str, Format] = {f.name: f for f in _ALL}
"""Formats by name. A llama.cpp file type that has the name of a block type ends in -file; the files
Q6_K and Q8_0 are their block type throughout (6.5633 and 8.5008 bits with norms in fp32)."""

FILES = {f.name.removesuffix("-file"): f.name for f in _ALL if f.name.endswith("-file")} | {
    "q3_k": "q3_k_m", "q4_k": "q4_k_m", "q5_k": "q5_k_m",
}  # fmt: skip
"""Files that people mean by the name of a block type: llama-quantize has q4_k for q4_k_m."""

SPELLED = {
    "f32": "fp32", "float32": "fp32", "float": "fp32", "f16": "fp16", "float16": "fp16",
    "half": "fp16", "bfloat16": "bf16", "fp8_e4m3": "fp8", "fp8_e4m3fn": "fp8", "fp8-e4m3": "fp8",
    "float8": "fp8", "e4m3": "fp8",
}  # fmt: skip
"""Formats as torch, vLLM and llama.cpp spell them."""
VAGUE = {
    **dict.fromkeys(("4bit", "4-bit", "q4", "w4a16", "fp4", "bnb-4bit", "bnb"),
                    "Say int4, awq, gptq, nf4, mxfp4, nvfp4 or, of llama.cpp, q4_k_m."),
    **dict.fromkeys(("8bit", "8-bit", "q8", "w8a16", "w8a8"),
                    "Say fp8, int8, int8-weights (LLM.int8) or, of llama.cpp, q8_0."),
    **dict.fromkeys(("q2", "q3", "q5", "q6"), "Say q2_k, q3_k_m, q5_k_m or q6_k."),
    **dict.fromkeys(("16bit", "16-bit", "w16a16"), "Say bf16 or fp16."),
}  # fmt: skip
"""What to say in place of a word that several formats answer to."""

MIXTURES: dict[str, Mixture] = {f.name: f for f in _ALL if isinstance(f, Mixture)}
"""The file types among them whose rule is known."""

LARGEST = {"e4m3": 448.0, "e4m3fnuz": 240.0, "e5m2": 57344.0, "e2m1": 6.0}
"""Largest number of each small float [1]. NVIDIA's e4m3 is the one without infinity (448); 240 is
that of the FNUZ variant of AMD's MI300."""


def find_format(name: str, where: str = "") -> Format:
    """Look a number format up in any case; raise `RooflmError` with the known ones otherwise."""
    word = name.lower()
    found = FORMATS.get(SPELLED.get(word, word))
    if found is None:
        fix = VAGUE.get(word) or nearest(name, FORMATS) or f"Known formats: {', '.join(FORMATS)}."
        raise RooflmError(f"unknown number format '{name[:40]}'", where, fix)
    return found


CacheRole = Literal["key", "value", "latent", "rope", "index", "entry"]
"""What a cached vector is: the key or value of a head, the latent of latent attention, its rotary
key, the key of an indexer, or a compressed entry with its rotary part."""

ENTRY_ROPE = 64
"""Rotary numbers of a compressed entry, which stay in bf16 [1]."""


@dataclass(frozen=True)
class Layout:
    """How the vectors of a role lie in memory."""

    bits: Q
    """Bits of one number."""
    group: int = 0
    """Numbers of a vector that share a scale; 0 where there are no groups."""
    group_bits: Q = 0
    """Scale and zero of a group [bits]."""
    vector_bits: Q = 0
    """Scale of a vector [bits]."""
    bf16: int = 0
    """Numbers of the vector that stay in bf16, without a scale [1]."""
    multiple: int = 1
    """Scales are filled up to a multiple of this [B]."""

    def bytes(self, width: Q) -> Q:
        """Bytes of a vector [B].

        width: its numbers [1].
        """
        small = width - self.bf16
        scales: Q = self.vector_bits
        if self.group:
            scales += self.group_bits * ceil(small / self.group)
        if self.multiple > 1:
            scales = 8 * self.multiple * ceil(scales / (8 * self.multiple))
        return ratio(self.bits * small + 16 * self.bf16 + scales, 8)


@dataclass(frozen=True)
class CacheFormat:
    """A number format of a cache: bytes by vector, since scales belong to vectors.

    What there is one of for a layer or a page (the scale of an fp8 cache) is not counted.
    """

    name: str
    usual: Layout
    """How vectors lie whose role has no layout of its own."""
    compute: str = ""
    """Format whose peak rate attention computes at; that of the activations where it is ""."""
    roles: tuple[tuple[CacheRole, Layout], ...] = ()
    """Layouts of roles in place of the usual one."""
    stores: str = ""
    """What lies beside the numbers, in words."""

    @property
    def bytes(self) -> Q:
        """Bytes of one number of a key or value without scales [B]."""
        return ratio(self.usual.bits, 8)

    def vector_bytes(self, width: Q, role: CacheRole = "key") -> Q:
        """Bytes of one cached vector with its scales [B].

        width: its numbers, H for a key or value [1]; role: what it is.

        >>> CACHES["int8-head"].vector_bytes(128)
        132
        """
        return dict(self.roles).get(role, self.usual).bytes(width)


_MLA = Layout(8, group=128, group_bits=32)
_INDEX = Layout(8, group=128, group_bits=32)
_ENTRY = Layout(8, group=64, group_bits=8, bf16=ENTRY_ROPE, multiple=8)
_DEEPSEEK: tuple[tuple[CacheRole, Layout], ...] = (
    ("latent", _MLA), ("rope", Layout(16)), ("index", _INDEX),
    ("entry", _ENTRY),
)  # fmt: skip

_CACHES = (
    CacheFormat("fp32", Layout(32), "fp32"),
    CacheFormat("bf16", Layout(16), "bf16"),
    CacheFormat("fp16", Layout(16), "fp16"),
    CacheFormat("fp8", Layout(8), "fp8", stores="one scale a layer, not counted"),
    CacheFormat("bf16-deepseek", Layout(16), "bf16", (("index", _INDEX),),
                "index keys in 8 bits with an fp32 scale of 128 numbers, all else in bf16"),
    CacheFormat("fp8-deepseek", Layout(8), "", _DEEPSEEK,
                "fp32 scale of 128 numbers of a latent or index key; rotary numbers in bf16; "
                "entries: a power of two of 64 numbers, filled up to 8 B"),
    CacheFormat("fp8-deepseek-fp4", Layout(8), "",
                (*_DEEPSEEK[:2], ("index", Layout(4, group=32, group_bits=8)), _DEEPSEEK[3]),
                "as fp8-deepseek, index keys in mxfp4"),
    CacheFormat("int8-head", Layout(8, vector_bits=32), stores="fp32 scale of a token and head"),
    CacheFormat("nvfp4", Layout(4, group=16, group_bits=8), stores="e4m3 scale of 16 numbers"),
    CacheFormat("int2-g32", Layout(2, group=32, group_bits=32),
                stores="fp16 scale and zero of 32 numbers; KIVI's window in 16 bits not counted"),
    CacheFormat("q8_0", Layout(8, group=32, group_bits=16), stores="fp16 scale of 32 numbers"),
    CacheFormat("q4_0", Layout(4, group=32, group_bits=16), stores="fp16 scale of 32 numbers"),
)  # fmt: skip

CACHES: dict[str, CacheFormat] = {c.name: c for c in _CACHES}
"""Formats of caches by name.

Sources: github.com/vllm-project/vllm, vllm/v1/kv_cache_interface.py (int8 by head, nvfp4);
arxiv.org/abs/2402.02750 (KIVI, 2 bits); github.com/deepseek-ai/FlashMLA, README (656 B for a latent
of 512 and 64 rotary numbers); docs.vllm.ai, models/deepseek_v4 (448 fp8 and 64 bf16 numbers, 8 B of
scales); github.com/sgl-project/sglang, python/sglang/srt/mem_cache/memory_pool.py (bf16 beside
index keys of 132 B); github.com/ggml-org/llama.cpp, --cache-type-k (q8_0, q4_0)."""


def find_cache_format(name: str, where: str = "") -> CacheFormat:
    """Look the format of a cache up, as `find_format` does."""
    word = name.lower()
    found = CACHES.get(SPELLED.get(word, word))
    if found is None:
        fix = nearest(name, CACHES) or f"Known formats of caches: {', '.join(CACHES)}."
        if "," in name:
            fix = "Say one; `rooflm compare` takes several."
        if name.lower() == "int8":
            fix = "Say int8-head (a scale a token and head), q8_0 (llama.cpp) or fp8."
        raise RooflmError(f"unknown number format of a cache '{name[:40]}'", where, fix)
    return found
