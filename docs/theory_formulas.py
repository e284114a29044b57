# ruff: noqa: RUF001
"""Which formulas docs/theory.md shows, section by section, and the numbers of their examples.

Each is a function, what its arguments are called where that is not their own name, and numbers.
"""

from __future__ import annotations

_LLAMA_13B = "S=1024, K=40, H=128, L=40, b_kv=2"
_MLA = "N=128, c=512, r=64, d=128, v=128"
_QUEUE = "rate=λ, service=t"
_LOAD = "rate=λ, steps=G, token_bytes=κ, bytes_per_s=β"
_LINK = "size=M, ranks=n, link=β_l, latency=a"
_MESSAGE = "M=262144, n=8, β_l=450e9, a=2e-6"

SHOWN: dict[str, tuple[tuple[str, str, str], ...]] = {
    "matmul": (
        ("matmul.matmul_flops", "rows=B", "B=64, D=5120, F=13824"),
        ("matmul.matmul_bytes", "rows=B", "B=64, D=5120, F=13824"),
        ("matmul.intensity", "", "flops=9059696640, bytes=143982592"),
        ("theory_derived.matmul_intensity", "", "B=64, D=5120, F=13824"),
        ("matmul.matmul_intensity_limit", "", "D=5120, F=13824"),
    ),
    "ridge": (
        ("matmul.ridge", "flops_per_s=C, bytes_per_s=β", "C=989e12, β=3.35e12"),
        ("matmul.saturating_rows_shortcut", "ridge=I", "I=295.2239"),
        ("theory_derived.matmul_turn", "", "D=5120, F=13824, I=295.2239"),
    ),
    "mlp": (
        ("mlp.mlp_flops", "rows=B*T, matrices=3", "B=1, T=1024, D=5120, F=13824"),
        ("mlp.mlp_bytes", "rows=B*T", "B=1, T=1024, D=5120, F=13824"),
        ("theory_derived.mlp_intensity", "", "B=1, T=1024, D=5120, F=13824"),
        ("mlp.mlp_bytes_unfused", "rows=B*T", "B=1, T=1024, D=5120, F=13824"),
        ("theory_derived.mlp_turn", "", "D=5120, F=13824, I=295.2239"),
    ),
    "pairs": (
        ("attention.causal_pairs", "", "n=6144, T=2048"),
        ("attention.full_pairs", "", "n=0, T=2048"),
        ("matmul.causal_tile_pairs", "tile=t", "T=2048, t=128"),
        ("requests.pairs_without_cache", "tokens=n", "n=1024"),
        ("mlp.fractional_attention_tokens", "causal=False", "D=4096"),
    ),
    "attention": (
        ("attention.attention_flops", "pairs=B*S*T", "B=1, S=2048, T=1, N=40, H=128"),
        ("attention.attention_bytes", "", "B=1, S=2048, T=1, N=40, K=40, H=128"),
        ("theory_derived.attention_intensity", "", "S=2048, T=1, N=40, K=40"),
        ("attention.attention_intensity_limit", "", "T=1, N=32, K=8, b_kv=1"),
    ),
    "parameters": (
        ("attention.attention_parameters", "", "D=5120, N=40, K=40, H=128"),
        ("mlp.mlp_parameters", "", "D=5120, F=13824, matrices=3"),
        ("model.embedding_parameters", "", "V=32000, D=5120"),
        ("model.embedding_read_bytes", "rows=B*T, b=b_w", "B=8, T=1, V=128256, D=4096, b_w=2"),
        ("residual.layer_embedding_parameters", "", "V=262144, L=35, e=256"),
        ("residual.hyper_connection_parameters", "", "D=4096, h=4"),
    ),
    "adapters": (
        (
            "adapters.adapter_parameters",
            "inputs=D, outputs=F, rank=r",
            "D=12288, F=12288, r=8",
        ),
        ("adapters.distinct_adapters", "sequences=B, held=n", "B=2, n=4"),
    ),
    "cache": (
        ("attention.kv_cache_elements", "tokens=S", "K=8, H=128, S=1"),
        ("attention.kv_cache_bytes", "b=b_kv", "S=1024, K=40, H=128, L=40, b_kv=2"),
        ("attention.shared_layers", "share=s", "L=32, s=3"),
    ),
    "mla": (
        ("mla.mla_cache_elements", "tokens=S", "c=512, r=64, S=1"),
        ("mla.materialised_cache_elements", "tokens=S", "N=128, d=128, r=64, v=128, S=1"),
        ("mla.absorbed_flops", "pairs=S*T, rows=T", f"S=8192, T=1, {_MLA}"),
        ("mla.materialised_flops", "pairs=S*T, tokens=S", f"S=8192, T=1, {_MLA}"),
        ("mla.mixed_flops", "", f"B=512, h=4096, pairs=1024, {_MLA}"),
        ("theory_derived.absorbed_intensity", "", "N=128, c=512, r=64, b_kv=2"),
        ("theory_derived.materialising_tokens", "", "c=512, r=64, d=128, v=128"),
    ),
    "windows": (
        ("attention.windowed_pairs", "n=0", "T=2048, W=1024"),
        ("attention.chunked_pairs", "n=0, C=W", "T=1000001, W=8192"),
        ("attention.receptive_field", "", "L=32, W=4096"),
        ("sharing.common_window_tokens", "", "S=1500, W=1024, h=1000, s=4"),
    ),
    "sparse": (
        ("sparse.indexed_pairs", "n=0", "T=131072, k=2048"),
        ("sparse.index_flops", "heads=N_I, width=H_I", "pairs=131072, N_I=64, H_I=128"),
        ("sparse.indexed_tokens", "", "S=131072, k=2048"),
        ("sparse.break_even_tokens", "entry=c, key=i", "k=2048, c=656, i=132"),
        ("sparse.block_pairs", "n=0, block=b_I", "T=10000, k=16, b_I=128"),
    ),
    "compressed": (
        ("compressed.compressed_cache_elements", "", "S=1048576, W=128, c=512, m=4, i=128"),
        ("compressed.all_entry_pairs", "n=0", "T=8192, m=128"),
        ("compressed.entry_pairs", "n=0", "T=8192, m=4, k=1024"),
        ("compressed.compressor_state_elements", "width=c, overlap=o", "m=4, c=512, o=2"),
    ),
    "states": (
        (
            "linear_attention.linear_state_elements",
            "heads=N_l, key=d_k, value=d_v",
            "N_l=32, d_k=128, d_v=128",
        ),
        ("state.convolution_columns", "channels=D_i, taps=k_c", "D_i=5120, k_c=4"),
        ("state.state_bytes", "", "recurrent=81920, columns=15360"),
        ("linear_attention.linear_attention_flops", "decays=False", "state=262144"),
        ("linear_attention.delta_rule_flops", "", "state=524288"),
        ("ssm.scan_flops", "", "state=81920"),
        (
            "ssm.ssd_flops",
            "heads=N_m, width=H_m, state=N_s, groups=G_m, chunk=T_c",
            "N_m=80, H_m=64, N_s=128, G_m=1, T_c=256",
        ),
    ),
    "state_parameters": (
        (
            "ssm.mamba_parameters",
            "d=D_i, s=N_s, r=R_s, taps=k_c",
            "D=2560, D_i=5120, N_s=16, R_s=160, k_c=4",
        ),
        (
            "ssm.mamba2_parameters",
            "heads=N_m, width=H_m, s=N_s, groups=G_m, taps=k_c",
            "D=4096, N_m=128, H_m=64, N_s=128, G_m=8, k_c=4",
        ),
        ("rwkv.rwkv7_parameters", "", "L=32, D=2560, V=65536, w=96, a=96, v=64, g=320"),
    ),
    "diffusion": (
        (
            "diffusion.denoising_flops",
            "P=parameters, tokens=n",
            "parameters=8000000000, n=256, L=32, N=32, H=128",
        ),
        ("diffusion.tokens_per_step", "output_tokens=G, steps=s", "G=128, s=32"),
        (
            "diffusion.saturating_batch",
            "memory_s=t_m, compute_s=t_c",
            "t_m=0.00477612, t_c=0.00417630",
        ),
        (
            "diffusion.least_tokens_per_step",
            "tokens_per_s=R, weights_bytes=weights, bytes_per_s=β",
            "R=1109, weights=14e9, β=3.35e12",
        ),
    ),
    "blocks": (
        ("diffusion.block_tokens_per_pass", "steps=s, commit=m", "block=32, s=8, m=1"),
        ("diffusion.block_cache_reads", "steps=s, commit=m", "S=4096, block=32, s=8, m=1"),
    ),
    "experts": (
        ("experts.distinct_experts", "rows=B", "B=64, E=256, k=8"),
        ("experts.independent_rows", "rows=B, alike=a", "B=32, a=0.46"),
        ("experts.saturating_tokens", "ridge=I", "I=295.2239, E=256, k=8"),
    ),
    "time": (
        ("timing.bandwidth_time", "bytes_per_s=β", "bytes=26869760000, β=3.35e12"),
        ("timing.compute_time", "flops_per_s=C", "flops=989e9, C=989e12"),
        ("timing.throughput", "tokens=B, seconds=t", "B=64, t=0.0237964"),
    ),
    "lecture": (
        ("theory_derived.step_time", "", f"weights=26030899200, B=64, {_LLAMA_13B}, β=3.35e12"),
        (
            "theory_derived.step_throughput",
            "",
            f"weights=26030899200, B=64, {_LLAMA_13B}, β=3.35e12",
        ),
        ("theory_derived.throughput_limit", "", f"{_LLAMA_13B}, β=3.35e12"),
        (
            "theory_derived.equal_context",
            "",
            "weights=26030899200, B=64, K=40, H=128, L=40, b_kv=2",
        ),
        (
            "theory_derived.latency_batch",
            "",
            f"τ=0.02, weights=26030899200, {_LLAMA_13B}, β=3.35e12",
        ),
    ),
    "budget": (
        (
            "theory_derived.budget_batch",
            "",
            "M=80e9, R=0, weights=16e9, S=4096, K=8, H=128, L=32, b_kv=2",
        ),
    ),
    "requests": (
        ("requests.reused_tokens", "prompt=P", "P=3000, matched=2999, block=16"),
        ("requests.chunk_count", "tokens=P, chunk=T_c", "P=8192, T_c=512"),
        ("requests.chunked_cache_reads", "passes=m, chunk=T_c", "m=16, T_c=512"),
        ("requests.end_to_end_time", "output_tokens=G", "ttft=0.2, itl=0.02, G=100"),
    ),
    "quantizer": (
        ("quantize.affine_scale", "low=x_min, high=x_max, bits=b", "x_min=-10.0, x_max=15.5, b=8"),
        ("quantize.symmetric_scale", "largest=x_max, bits=b", "x_max=31.75, b=8"),
        ("quantize.uniform_mse", "scale=s", "s=0.1"),
    ),
    "bits": (
        (
            "theory_derived.stored_bits",
            "",
            "bits=4, scale=16, zero=4, group=128",
        ),
        (
            "theory_derived.weight_only_speedup",
            "",
            "weights=26030899200, B=64, cache=838860800, r=4",
        ),
    ),
    "law": (
        ("speculation.accept_probability", "", "p=0.8, q=0.6"),
        ("speculation.accepted_mass", "", "p=0.8, q=0.6"),
        ("speculation.rejected_mass", "", "p=0.2, q=0.4"),
    ),
    "speculation": (
        ("speculation.expected_tokens", "alpha=α, gamma=γ", "α=0.8, γ=4"),
        ("theory_derived.expected_tokens_closed", "", "α=0.8, γ=4"),
        (
            "speculation.speculative_speedup",
            "tokens=E, plain=t, drafting=t_d, verifying=t_v",
            "E=3.3616, t=0.0053, t_d=0.0024, t_v=0.0053",
        ),
        ("speculation.ideal_speedup", "alpha=α, gamma=γ", "α=0.8, γ=4, c=0.05"),
        ("speculation.work_increase", "tokens=E, gamma=γ", "E=3.3616, γ=4, c=0.05"),
        ("speculation.best_gamma", "alpha=α", "α=0.8, c=0.05"),
        ("speculation.expected_chain_tokens", "alpha=α, gamma=γ, chains=b", "α=0.6, γ=4, b=2"),
        ("speculation.medusa_parameters", "heads=h", "D=4096, V=32000, h=5"),
    ),
    "packing": (
        ("queueing.packed_rows", "lengths=[T_1, T_2, T_3]", "T_1=3, T_2=9, T_3=5"),
        ("queueing.rows_to_longest", "lengths=[T_1, T_2, T_3]", "T_1=3, T_2=9, T_3=5"),
        ("queueing.packed_pairs", "lengths=[T_1, T_2, T_3]", "T_1=3, T_2=9, T_3=5"),
        ("queueing.mixed_pairs", "lengths=[T_1, T_2, T_3]", "T_1=3, T_2=9, T_3=5"),
    ),
    "served": (
        (
            "requests.served_token_time",
            "step=t, prefill=t_p, clients=c, output_tokens=G",
            "t=0.02, t_p=0.1, c=33, G=128",
        ),
        (
            "queueing.mixed_step_time",
            "token_bytes=κ, flops_per_s=C, bytes_per_s=β",
            "B=64, S=2048, n=4096, T=512, parameters=8030261248, weights=16060522496, "
            "κ=131072, pair_flops=524288, C=989e12, β=3.35e12",
        ),
    ),
    "steady": (
        ("queueing.mean_context", "steps=G", "P=1024, G=256"),
        (
            "queueing.served_step_time",
            _LOAD,
            "λ=10, G=256, S=1152.5, weights=16060522496, κ=131072, β=3.35e12",
        ),
        (
            "queueing.served_batch",
            _LOAD,
            "λ=10, G=256, S=1152.5, weights=16060522496, κ=131072, β=3.35e12",
        ),
        (
            "queueing.greatest_rate",
            "steps=G, token_bytes=κ, bytes_per_s=β",
            "G=256, S=1152.5, κ=131072, β=3.35e12",
        ),
        ("queueing.ending_per_step", "steps=G", "B=32, G=4096"),
        ("queueing.freed_per_step", "steps=G", "B=32, P=8192, G=4096"),
        (
            "handoff.prefills_per_decode",
            "prefill=t_p, decoding=t_G, sequences=B",
            "t_p=0.1, t_G=2.0, B=40",
        ),
        ("queueing.goodput", "rate=λ, attained=s", "λ=2.0, s=0.5"),
    ),
    "queues": (
        ("queueing.busy_share", _QUEUE, "λ=5, t=0.1"),
        (
            "queueing.mean_power",
            "times=[t_1, t_2], shares=[s_1, s_2], power=2",
            "t_1=0.05, t_2=0.25, s_1=0.75, s_2=0.25",
        ),
        ("queueing.mean_wait", f"{_QUEUE}, second_moment=m_2", "λ=4, t=0.1, m_2=0.0175"),
        ("queueing.mean_wait_equal", _QUEUE, "λ=5, t=0.1"),
        ("queueing.mean_wait_exponential", _QUEUE, "λ=5, t=0.1"),
        ("queueing.queued_ttft", _QUEUE, "λ=5, t=0.1"),
        ("queueing.pipelined_ttft", f"{_QUEUE}, stages=p", "λ=8, t=0.1, p=2"),
        ("queueing.sharded_ttft", f"{_QUEUE}, speedup=k", "λ=8, t=0.1, k=1.5"),
    ),
    "paging": (
        ("paging.sequence_blocks", "", "S=4097, block=16"),
        ("paging.pool_blocks", "budget=M, token_bytes=κ", "M=12884901888, κ=819200, block=16"),
        ("paging.pool_sequences", "blocks=n", "n=19073, S=4097, block=16"),
        ("paging.unfilled_tokens", "", "S=17, block=16"),
        ("paging.mean_unfilled_tokens", "", "block=16"),
        ("paging.mean_reserved_use", "steps=G, longest=m", "P=161.31, G=337.99, m=2048"),
        ("paging.final_reserved_use", "steps=G, longest=m", "P=161.31, G=337.99, m=2048"),
        ("paging.unreserved_share", "slots=n, longest=m", "n=15728, m=2048"),
    ),
    "prefixes": (
        ("sharing.common_once", "each=s, common=h", "B=32, s=2560, h=2048"),
        ("paging.sampled_blocks", "steps=G", "B=4, P=100, G=60, block=16"),
        ("paging.sample_copies", "", "B=4, P=100, block=16"),
    ),
    "collectives": (
        ("collectives.ring_gather_time", _LINK, _MESSAGE),
        ("collectives.ring_all_reduce_time", _LINK, _MESSAGE),
        ("collectives.one_shot_time", _LINK, _MESSAGE),
        ("collectives.two_shot_time", _LINK, _MESSAGE),
        ("collectives.in_switch_time", _LINK, _MESSAGE),
        ("collectives.two_shot_turn", "ranks=n, link=β_l, latency=a", "n=8, β_l=450e9, a=2e-6"),
        ("collectives.all_to_all_bytes", "size=M, ranks=n", "M=1048576, n=4"),
        ("collectives.all_to_all_time", _LINK, "M=33554432, n=8, β_l=450e9, a=0"),
        ("collectives.ragged_all_to_all_time", _LINK, "M=33554432, n=8, k=4, β_l=450e9, a=0"),
        (
            "collectives.point_to_point_time",
            "size=M, link=β_l, latency=a",
            "M=65536, β_l=50e9, a=5e-6",
        ),
    ),
    "tensor": (
        ("collectives.shared_heads", "ranks=n", "K=8, n=4"),
        (
            "collectives.tensor_parallel_memory_time",
            "weight_bytes=weights, cache_bytes=cache, ranks=n, bandwidth=β",
            "weights=141107412992, cache=21474836480, n=8, K=8, β=3.35e12",
        ),
        (
            "collectives.best_ring_ranks",
            "seconds=t, size=M, link=β_l, latency=a",
            "t=0.048532, L=80, M=262144, β_l=450e9, a=2e-6",
        ),
        (
            "collectives.best_one_shot_ranks",
            "seconds=t, size=M, link=β_l",
            "t=0.048532, L=80, M=262144, β_l=450e9",
        ),
        ("collectives.decode_link_limit", "ratio=r", "F=28672, B=64, r=8"),
        (
            "collectives.prefill_link_limit",
            "link=β_l, flops_per_s=C",
            "F=28672, β_l=450e9, C=990e12",
        ),
    ),
    "pipeline": (
        (
            "collectives.pipeline_stage_time",
            "weight_bytes=weights, cache_bytes=cache, stages=p, bandwidth=β",
            "weights=141107412992, cache=21474836480, p=4, β=3.35e12",
        ),
        (
            "collectives.pipeline_token_time",
            "weight_bytes=weights, cache_bytes=cache, stages=p, bandwidth=β",
            "weights=141107412992, cache=21474836480, p=4, β=3.35e12",
        ),
        ("collectives.replica_throughput", "tokens_per_s=R, replicas=n", "R=2113.5, n=4"),
    ),
    "exchange": (
        ("collectives.distinct_destinations", "ranks=n", "n=64, E=256, k=8"),
        ("collectives.remote_copies", "copies=k, ranks=n", "k=8, n=64"),
        (
            "collectives.expert_exchange_bytes",
            "tokens=T, copies=k, dispatch=b_d, combine=b_c",
            "T=128, k=7.875, D=7168, b_d=1, b_c=2",
        ),
        ("collectives.query_gather_bytes", "rows=B", "B=8, N=64, H=128, b=2"),
        ("collectives.partial_output_bytes", "rows=B", "B=8, N=64, H=128, b=2"),
    ),
    "pools": (
        (
            "engine_memory.vllm_pool_bytes",
            "total=M, utilization=u, activations=A, non_torch=R, graphs=g",
            "M=139.72e9, u=1.0, weights=39.66e9, A=0.24e9, R=2.53e9, g=0",
        ),
        (
            "engine_memory.graph_utilization",
            "utilization=u, graphs=g, total=M",
            "u=0.95, g=0.66e9, M=24e9",
        ),
        ("engine_memory.page_blocks", "layers=L", "pool=58908206489.6, page=65536, L=32"),
        ("engine_memory.pool_concurrency", "request_blocks=n", "blocks=1381, n=128"),
        (
            "engine_memory.sglang_pool_bytes",
            "before=M_0, after=M_1, fraction=f",
            "M_0=79e9, M_1=63e9, f=0.88",
        ),
        (
            "engine_memory.sglang_tokens",
            "full=κ_f, window=κ_w, ratio=r",
            "pool=1e9, κ_f=5511.4375, κ_w=35624, r=0.1, page=1",
        ),
        (
            "engine_memory.sglang_share",
            "total=M, chunk=T_c, graphs=G, ranks=n, least=M_l",
            "M=150754820096, T_c=8192, G=20401094656, n=8, M_l=10737418240",
        ),
        ("engine_memory.sglang_graph_bytes", "graphs=B_g, groups=g", "B_g=512, g=8"),
        ("engine_memory.sglang_states", "ratio=r, state=s", "pool=20e9, r=0.9, s=99e6"),
        (
            "engine_memory.trtllm_blocks",
            "fraction=f, token=κ",
            "free=19144816722, f=0.9, κ=65536, block=32",
        ),
        ("engine_memory.llama_cells", "streams=n", "context=1024, n=3, pad=256"),
        (
            "engine_memory.llama_window_cells",
            "window=W, slots=n",
            "cells=32768, W=2048, batch=512, n=1, pad=256",
        ),
    ),
    "pages": (
        ("memory.paged_window_tokens", "batched=m", "W=1024, S=131072, m=8192, block=16"),
        ("memory.paged_chunk_tokens", "C=W, batched=m", "W=8192, S=131072, m=8192, block=16"),
        ("engine_memory.state_page_tokens", "token=κ, granule=g", "state=3207168, κ=4096, g=16"),
        ("engine_memory.aligned_page_bytes", "unit=u", "size=37376, u=576"),
        ("engine_memory.group_layers", "fewest=n_1, most=n_2", "n_1=16, n_2=48"),
        ("engine_memory.state_blocks", "", "drafted=4, cached=1"),
    ),
    "passes": (
        ("engine_memory.mlp_pass_bytes", "", "T=8192, D=4096, F=14336"),
        ("engine_memory.logits_bytes", "", "rows=256, V=128256"),
        ("engine_memory.rope_table_bytes", "", "positions=131072, width=128"),
    ),
    "kernels": (
        ("estimate.padded_rows", "rows=B, tile=t", "B=65, t=64"),
        (
            "estimate.kernel_time",
            "bytes_per_s=β_k, flops_per_s=C_k, start=t_0, serial=s",
            "bytes=33554432, flops=33554432, β_k=2.8475e12, C_k=781.31e12, t_0=4e-6, s=0",
        ),
    ),
    "cost": (
        (
            "cost.usd_per_mtok",
            "usd_per_hour=price, tokens_per_s=R, utilization=u",
            "price=2.0, R=6416.688, u=1",
        ),
        (
            "cost.joules_per_token",
            "power_w=power, tokens_per_s=R, pue=PUE",
            "power=700.0, R=6416.688, PUE=1.2",
        ),
        (
            "cost.rent_usd",
            "devices=n, usd_per_hour=price, seconds=t",
            "n=1814, price=2.0, t=86400",
        ),
        (
            "cost.tariff_usd",
            "cached_tokens=n_c, input_tokens=n_i, output_tokens=n_o, cached_usd_per_mtok=p_c, "
            "input_usd_per_mtok=p_i, output_usd_per_mtok=p_o",
            "n_c=342e9, n_i=266e9, n_o=168e9, p_c=0.14, p_i=0.55, p_o=2.19",
        ),
        ("cost.margin", "revenue_usd=revenue, cost_usd=cost", "revenue=562027, cost=87072"),
    ),
}
"""Sections of the page, and the formulas of each: function, letters, numbers."""

LEFT_OUT = {
    "scored_entry_pairs": "`all_entry_pairs` of the queries from position (k + 1)m - 1 on: those "
    "before have no more than k entries, and score none",
    "attainment": "it counts requests that keep two limits, and a symbol keeps or breaks none",
}
"""Formulas of the register that the page does not show, with the reason."""
