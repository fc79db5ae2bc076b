"""Records the fixtures of src/formats: files written by the real libraries, and files that lie.

    python tests/tools/record_formats.py configs    # any transformers; one folder per version
    python tests/tools/record_formats.py weights    # safetensors, torch, peft
    python tests/tools/record_formats.py lies       # needs nothing but Python

Versions are noted in each recording. Output: tests/fixtures/formats/.
"""

import json
import pathlib
import shutil
import struct
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "formats"

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
SIZES = dict(
    vocab_size=96,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
)
GPT_NEOX = {name: size for name, size in SIZES.items() if name != "num_key_value_heads"}
LATENT = dict(
    SIZES,
    num_key_value_heads=4,
    kv_lora_rank=24,
    q_lora_rank=16,
    qk_nope_head_dim=12,
    qk_rope_head_dim=8,
    v_head_dim=10,
    bos_token_id=4,
    eos_token_id=5,
)
# Some layers with delta nets; a quarter of a head turns.
DELTA = dict(
    SIZES,
    head_dim=16,
    linear_num_key_heads=2,
    linear_num_value_heads=6,
    linear_key_head_dim=10,
    linear_value_head_dim=12,
    eos_token_id=5,
)
QWEN_WINDOW = dict(use_sliding_window=True, sliding_window=16, max_window_layers=2)

# name: (configuration class, constructor arguments)
CASES = {
    "llama2": ("LlamaConfig", dict(SIZES, num_key_value_heads=4, rms_norm_eps=1e-5)),
    "llama3": (
        "LlamaConfig",
        dict(SIZES, rope_theta=500000.0, rope_scaling=LLAMA3_ROPE, eos_token_id=[5, 6, 7],
             bos_token_id=4, torch_dtype="bfloat16"),
    ),
    "llama_linear": (
        "LlamaConfig",
        dict(SIZES, rope_scaling={"rope_type": "linear", "factor": 2.0}, torch_dtype="float16"),
    ),
    "llama_bias": (
        "LlamaConfig",
        dict(SIZES, attention_bias=True, mlp_bias=True, head_dim=16, tie_word_embeddings=True,
             pad_token_id=0),
    ),
    "mistral": ("MistralConfig", dict(SIZES)),
    "mistral_full": ("MistralConfig", dict(SIZES, sliding_window=None, rope_theta=1000000.0)),
    "qwen2": ("Qwen2Config", dict(SIZES, tie_word_embeddings=True, rope_theta=1000000.0,
                                  bos_token_id=90, eos_token_id=91)),
    "qwen2_window": ("Qwen2Config", dict(SIZES, **QWEN_WINDOW)),
    "qwen3": ("Qwen3Config", dict(SIZES, head_dim=16, rope_theta=1000000.0)),
    "qwen3_window": ("Qwen3Config", dict(SIZES, attention_bias=True, **QWEN_WINDOW)),
    "gpt2": ("GPT2Config", dict(vocab_size=96, n_embd=32, n_layer=2, n_head=4, n_positions=64)),
    "gpt2_gelu": (
        "GPT2Config",
        dict(vocab_size=96, n_embd=32, n_layer=2, n_head=2, n_positions=64, n_inner=80,
             activation_function="gelu", bos_token_id=1, eos_token_id=2),
    ),
    "phi3": ("Phi3Config", dict(SIZES, sliding_window=64, pad_token_id=None)),
    "phi3_longrope": (
        "Phi3Config",
        dict(SIZES, num_attention_heads=2, original_max_position_embeddings=64,
             partial_rotary_factor=0.75, tie_word_embeddings=True, pad_token_id=0,
             rope_scaling={"type": "longrope", "short_factor": [1.0, 1.1, 1.2, 1.3, 1.5, 2.0],
                           "long_factor": [1.0, 1.4, 2.0, 4.0, 5.5, 8.25]}),
    ),
    "gemma2": ("Gemma2Config", dict(SIZES, head_dim=16, sliding_window=16)),
    "gemma2_uncapped": (
        "Gemma2Config",
        dict(SIZES, head_dim=16, sliding_window=16, attn_logit_softcapping=None,
             final_logit_softcapping=12.5, query_pre_attn_scalar=144, attention_bias=True,
             rope_theta=500000.0, tie_word_embeddings=False),
    ),
    "gemma3": ("Gemma3TextConfig", dict(SIZES, head_dim=16, sliding_window=16)),
    "gemma4": (
        "Gemma4TextConfig",
        dict(SIZES, head_dim=16, sliding_window=16, hidden_size_per_layer_input=0),
    ),
    "gemma4_keys": (
        "Gemma4TextConfig",
        dict(SIZES, head_dim=16, global_head_dim=24, num_global_key_value_heads=1,
             attention_k_eq_v=True, sliding_window=16, hidden_size_per_layer_input=0,
             attention_bias=True, final_logit_softcapping=30.0, tie_word_embeddings=False,
             use_bidirectional_attention="vision",
             rope_parameters={
                 "full_attention": {"rope_type": "proportional", "rope_theta": 500000.0,
                                    "partial_rotary_factor": 0.5, "factor": 2.0},
                 "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0}}),
    ),
    "gemma4_layer_inputs": (
        "Gemma4TextConfig",
        dict(SIZES, head_dim=16, sliding_window=16, num_kv_shared_layers=2,
             layer_types=["sliding_attention", "full_attention"] * 2, use_double_wide_mlp=True,
             hidden_size_per_layer_input=12, vocab_size_per_layer_input=100),
    ),
    "gemma4_moe": (
        "Gemma4TextConfig",
        dict(SIZES, head_dim=16, sliding_window=16, hidden_size_per_layer_input=0,
             enable_moe_block=True, num_experts=6, top_k_experts=2, moe_intermediate_size=20),
    ),
    "vaultgemma": ("VaultGemmaConfig", dict(SIZES, head_dim=16, sliding_window=16)),
    "helium": ("HeliumConfig", dict(SIZES, head_dim=8, attention_bias=True)),
    "mellum": (
        "MellumConfig",
        dict(
            SIZES, head_dim=8, sliding_window=16, num_experts=6, num_experts_per_tok=3,
            moe_intermediate_size=20,
            layer_types=["sliding_attention", "full_attention"] * 2, attention_bias=True,
            mlp_layer_types=["dense", "sparse", "sparse", "dense"], num_mtp_layers=1,
        ),
    ),
    "hyperclovax": (
        "HyperCLOVAXConfig",
        dict(SIZES, head_dim=16, embedding_multiplier=3.0, logits_scaling=0.25),
    ),
    "hyperclovax_bare": (
        "HyperCLOVAXConfig",
        dict(SIZES, use_post_norm=False, attention_multiplier=0.5, mlp_bias=True),
    ),
    "granite_swa": (
        "GraniteSWAConfig", dict(SIZES, layer_rope_theta=[0, 1e4, 1e4, 1e4], sliding_window=16),
    ),
    "granitemoe_swa": (
        "GraniteMoeSWAConfig",
        dict(SIZES, layer_rope_theta=[1e6, 1e4, 0, 1e4], shared_intermediate_size=24),
    ),
    "mistral4": (
        "Mistral4Config",
        dict(LATENT, n_routed_experts=8, moe_intermediate_size=20, n_group=2, topk_group=1),
    ),
    "lfm3": (
        "Lfm3Config",
        dict(SIZES, num_hidden_layers=6, head_dim=16, pad_token_id=None, eos_token_id=5),
    ),
    "lfm3_bare": (
        "Lfm3Config",
        dict(
            SIZES, head_dim=16, pad_token_id=None, eos_token_id=5, use_sandwich_norm=False,
            use_attention_gate=False, attention_bias=True, conv_bias=True,
            layer_types=["sliding_attention"] * 3 + ["full_attention"], sliding_window=16,
        ),
    ),
    "nanochat": ("NanoChatConfig", dict(SIZES, attention_bias=True, hidden_act="gelu")),
    "olmo": ("OlmoConfig", dict(SIZES, attention_bias=True, tie_word_embeddings=True)),
    "exaone_moe": (
        "ExaoneMoeConfig",
        dict(SIZES, sliding_window=16, num_experts=8, moe_intermediate_size=24,
             num_experts_per_tok=2, first_k_dense_replace=2, n_group=2, topk_group=1),
    ),
    "exaone": ("ExaoneConfig", dict(SIZES, rope_scaling=LLAMA3_ROPE)),
    "internlm3": (
        "InternLM3Config",
        dict(SIZES, head_dim=16, attention_bias=True, mlp_bias=True),
    ),
    "llama4": (
        "Llama4TextConfig",
        dict(SIZES, head_dim=16, intermediate_size_mlp=64, num_local_experts=4,
             interleave_moe_layer_step=2, attention_chunk_size=32,
             rope_parameters={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                              "high_freq_factor": 1.0, "original_max_position_embeddings": 64,
                              "rope_theta": 500000.0}),
    ),
    "llama4_whole": (
        "Llama4TextConfig",
        dict(SIZES, head_dim=16, intermediate_size_mlp=64, num_local_experts=4,
             num_experts_per_tok=2, moe_layers=[0, 3], no_rope_layers=[1, 1, 0, 1],
             attention_chunk_size=None, use_qk_norm=False, attn_temperature_tuning=False,
             attention_bias=True),
    ),
    "gemma3n": (
        "Gemma3nTextConfig",
        dict(SIZES, head_dim=16, sliding_window=16, num_kv_shared_layers=2,
             layer_types=["sliding_attention", "full_attention"] * 2,
             hidden_size_per_layer_input=12, vocab_size_per_layer_input=90, laurel_rank=6),
    ),
    "gemma3n_unscaled": (
        "Gemma3nTextConfig",
        dict(SIZES, head_dim=16, sliding_window=16, num_kv_shared_layers=0,
             layer_types=["sliding_attention"] + ["full_attention"] * 3, altup_num_inputs=2,
             altup_correct_scale=False,
             altup_coef_clip=60.0, activation_sparsity_pattern=[0.95, 0.0, 0.5, 0.0],
             hidden_size_per_layer_input=12, laurel_rank=6, attention_bias=True,
             final_logit_softcapping=20.0, tie_word_embeddings=False, rope_theta=500000.0,
             rope_local_base_freq=5000.0),
    ),
    "gemma3_pattern": (
        "Gemma3TextConfig",
        dict(SIZES, head_dim=16, sliding_window=16, sliding_window_pattern=2, rope_theta=500000.0,
             rope_local_base_freq=5000.0, rope_scaling={"rope_type": "linear", "factor": 8.0},
             query_pre_attn_scalar=168, attention_bias=True, tie_word_embeddings=False),
    ),
    "olmo2": ("Olmo2Config", dict(SIZES, rope_theta=500000.0, eos_token_id=5)),
    "olmo3": ("Olmo3Config", dict(SIZES, sliding_window=16, rope_theta=500000.0, eos_token_id=5)),
    "olmo3_yarn": (
        "Olmo3Config",
        dict(SIZES, sliding_window=16, eos_token_id=5, rope_theta=500000.0,
             rope_scaling={"rope_type": "yarn", "factor": 8.0, "beta_fast": 32.0,
                           "beta_slow": 1.0, "original_max_position_embeddings": 32,
                           "attention_factor": 1.2079441541679836}),
    ),
    "starcoder2": ("Starcoder2Config", dict(SIZES, bos_token_id=0, eos_token_id=0)),
    "starcoder2_window": (
        "Starcoder2Config",
        dict(SIZES, sliding_window=16, use_bias=False, bos_token_id=0, eos_token_id=0),
    ),
    "stablelm": ("StableLmConfig", dict(SIZES)),
    "stablelm_bias": (
        "StableLmConfig",
        dict(SIZES, use_qkv_bias=True, partial_rotary_factor=0.5, tie_word_embeddings=True),
    ),
    "seed_oss": ("SeedOssConfig", dict(SIZES)),
    "seed_oss_bias": (
        "SeedOssConfig",
        dict(SIZES, head_dim=16, attention_bias=False, attention_out_bias=True, mlp_bias=True),
    ),
    "olmoe": ("OlmoeConfig", dict(SIZES, num_experts=6, num_experts_per_tok=3, eos_token_id=5)),
    "gpt_neox": ("GPTNeoXConfig", dict(GPT_NEOX)),
    "gpt_neox_sequential": (
        "GPTNeoXConfig",
        dict(GPT_NEOX, use_parallel_residual=False, attention_bias=False, rotary_pct=0.5,
             rotary_emb_base=25000, hidden_act="gelu_new", tie_word_embeddings=True,
             rope_scaling={"rope_type": "linear", "factor": 2.0}),
    ),
    "phi": ("PhiConfig", dict(SIZES)),
    "phi_whole_heads": (
        "PhiConfig",
        dict(SIZES, num_key_value_heads=None, partial_rotary_factor=1.0, rope_theta=25000.0,
             hidden_act="gelu", bos_token_id=None, eos_token_id=None),
    ),
    "cohere": ("CohereConfig", dict(SIZES, rope_theta=8000000.0, eos_token_id=6)),
    "cohere_qk_norm": (
        "CohereConfig",
        dict(SIZES, use_qk_norm=True, attention_bias=True, logit_scale=0.8333333333333334,
             rope_theta=75000000.0, tie_word_embeddings=False, eos_token_id=6),
    ),
    "stablelm_parallel": (
        "StableLmConfig", dict(SIZES, use_parallel_residual=True, qk_layernorm=True),
    ),
    "cohere2": ("Cohere2Config", dict(SIZES, sliding_window=16, eos_token_id=6)),
    "cohere2_listed": (
        "Cohere2Config",
        dict(SIZES, sliding_window=16, attention_bias=True, logit_scale=0.25, eos_token_id=6,
             layer_types=["full_attention", "sliding_attention"] * 2),
    ),
    "gemma": ("GemmaConfig", dict(SIZES, head_dim=16)),
    "glm": ("GlmConfig", dict(SIZES, head_dim=16, pad_token_id=0, eos_token_id=[5, 6])),
    "glm4": (
        "Glm4Config",
        dict(SIZES, head_dim=16, attention_bias=False, partial_rotary_factor=0.25,
             rms_norm_eps=1e-5, pad_token_id=0, eos_token_id=5),
    ),
    "exaone4": ("Exaone4Config", dict(SIZES, sliding_window=16)),
    "exaone4_windowless": (
        "Exaone4Config",
        dict(SIZES, sliding_window=None, layer_types=["full_attention"] * 4,
             tie_word_embeddings=True, rope_theta=1000000.0, rope_scaling=dict(LLAMA3_ROPE)),
    ),
    "ernie4_5": ("Ernie4_5Config", dict(SIZES, head_dim=16)),
    "ministral3": ("Ministral3Config", dict(SIZES, head_dim=16, sliding_window=16)),
    "arcee": ("ArceeConfig", dict(SIZES, attention_bias=True, eos_token_id=5, bos_token_id=4)),
    "arcee_yarn": (
        "ArceeConfig",
        dict(SIZES, mlp_bias=True, eos_token_id=5, bos_token_id=4, rope_theta=1000000.0,
             rope_scaling=dict(rope_type="yarn", factor=4.0,
                               original_max_position_embeddings=64)),
    ),
    "nemotron": ("NemotronConfig", dict(SIZES, head_dim=16, tie_word_embeddings=True)),
    "nemotron_turned": (
        "NemotronConfig",
        dict(SIZES, head_dim=16, partial_rotary_factor=0.25, attention_bias=True, norm_eps=1e-6),
    ),
    "youtu": ("YoutuConfig", dict(LATENT)),
    "youtu_halves": (
        "YoutuConfig",
        dict(LATENT, q_lora_rank=None, rope_interleave=False, attention_bias=False,
             tie_word_embeddings=False, rope_theta=500000.0),
    ),
    "minicpm3": ("MiniCPM3Config", dict(LATENT)),
    "minicpm3_longrope": (
        "MiniCPM3Config",
        dict(LATENT, v_head_dim=8, scale_emb=3, scale_depth=None, dim_model_base=None,
             rope_scaling=dict(type="longrope", short_factor=[1.0, 1.1, 1.3, 1.5],
                               long_factor=[1.0, 1.5, 3.0, 4.0],
                               original_max_position_embeddings=256)),
    ),
    "deepseek_v2_dense": (
        "DeepseekV2Config",
        dict(LATENT, first_k_dense_replace=4, num_experts_per_tok=2, q_lora_rank=None,
             rope_scaling=dict(type="yarn", factor=4.0, beta_fast=32, beta_slow=1, mscale=0.707,
                               mscale_all_dim=0.707, original_max_position_embeddings=64)),
    ),
    "deepseek_v3_dense": (
        "DeepseekV3Config",
        dict(LATENT, first_k_dense_replace=4, attention_bias=True, rms_norm_eps=1e-5),
    ),
    "deepseek_v2": (
        "DeepseekV2Config",
        dict(LATENT, first_k_dense_replace=1, num_experts_per_tok=3, n_routed_experts=12,
             n_shared_experts=2, moe_intermediate_size=20, q_lora_rank=None),
    ),
    "deepseek_v2_groups": (
        "DeepseekV2Config",
        dict(LATENT, first_k_dense_replace=0, num_experts_per_tok=3, n_routed_experts=12,
             moe_intermediate_size=20, topk_method="group_limited_greedy", n_group=4,
             topk_group=2, routed_scaling_factor=16.0),
    ),
    "deepseek_v3": (
        "DeepseekV3Config",
        dict(LATENT, first_k_dense_replace=2, num_experts_per_tok=3, n_routed_experts=12,
             moe_intermediate_size=20, n_group=3, topk_group=2, norm_topk_prob=False),
    ),
    "glm4_moe": (
        "Glm4MoeConfig",
        dict(SIZES, first_k_dense_replace=1, num_experts_per_tok=3, n_routed_experts=12,
             moe_intermediate_size=20, use_qk_norm=True, attention_bias=True,
             partial_rotary_factor=0.5, eos_token_id=[5, 6]),
    ),
    "glm4_moe_lite": (
        "Glm4MoeLiteConfig",
        dict(LATENT, num_experts_per_tok=3, n_routed_experts=12, moe_intermediate_size=20,
             mlp_layer_types=["dense", "dense", "sparse", "sparse"]),
    ),
    "glm4_moe_plain": (
        "Glm4MoeConfig",
        dict(SIZES, first_k_dense_replace=0, num_experts_per_tok=2, n_routed_experts=6,
             moe_intermediate_size=20, head_dim=12, n_group=3, topk_group=2),
    ),
    "qwen2_moe": (
        "Qwen2MoeConfig",
        dict(SIZES, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=20,
             shared_expert_intermediate_size=40, eos_token_id=5),
    ),
    "qwen2_moe_sparse": (
        "Qwen2MoeConfig",
        dict(SIZES, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=20,
             shared_expert_intermediate_size=40, decoder_sparse_step=2, mlp_only_layers=[3],
             norm_topk_prob=True, qkv_bias=False, tie_word_embeddings=True, eos_token_id=5),
    ),
    "granite": (
        "GraniteConfig",
        dict(SIZES, embedding_multiplier=12.0, attention_multiplier=0.015625,
             residual_multiplier=0.22, logits_scaling=8.0, tie_word_embeddings=True,
             rope_theta=10000000.0),
    ),
    "granite_bias": ("GraniteConfig", dict(SIZES, attention_bias=True, mlp_bias=True)),
    "smollm3": ("SmolLM3Config", dict(SIZES, eos_token_id=7, bos_token_id=4, pad_token_id=3)),
    "smollm3_window": (
        "SmolLM3Config",
        dict(SIZES, use_sliding_window=True, sliding_window=16, no_rope_layers=[0, 1, 1, 0],
             eos_token_id=7, bos_token_id=4, pad_token_id=3, mlp_bias=True),
    ),
    "lfm2": ("Lfm2Config", dict(SIZES, full_attn_idxs=[2], block_multiple_of=12)),
    "lfm2_biases": (
        "Lfm2Config",
        dict(SIZES, layer_types=["full_attention", "conv", "conv", "full_attention"],
             conv_bias=True, conv_L_cache=4, block_auto_adjust_ff_dim=False, tie_embedding=False,
             norm_eps=1e-6, eos_token_id=7, rope_theta=10000.0),
    ),
    "lfm2_moe": (
        "Lfm2MoeConfig",
        dict(SIZES, layer_types=["conv", "full_attention", "conv", "full_attention"],
             num_experts=6, num_experts_per_tok=3, moe_intermediate_size=20),
    ),
    "lfm2_moe_plain": (
        "Lfm2MoeConfig",
        dict(SIZES, layer_types=["conv"] * 4, num_dense_layers=0, num_experts=6,
             num_experts_per_tok=2, moe_intermediate_size=20, use_expert_bias=False,
             norm_topk_prob=False, routed_scaling_factor=2.5, tie_word_embeddings=False),
    ),
    "granite_hybrid": (
        "GraniteMoeHybridConfig",
        dict(SIZES, mamba_n_heads=8, layer_types=["mamba", "attention", "mamba", "mamba"]),
    ),
    "granite_hybrid_dense": (
        "GraniteMoeHybridConfig",
        dict(SIZES, num_local_experts=0, shared_intermediate_size=40, attention_bias=True,
             layer_types=["attention"] * 4, position_embedding_type="rope", mamba_n_heads=8,
             embedding_multiplier=12.0, logits_scaling=8.0, residual_multiplier=0.22,
             attention_multiplier=0.015625, tie_word_embeddings=True),
    ),
    "bamba": (
        "BambaConfig",
        dict(SIZES, attn_layer_indices=[2], mamba_n_heads=4, mamba_d_head=16, mamba_n_groups=2,
             mamba_d_state=24, mamba_d_conv=3, mamba_expand=2, mamba_conv_bias=False,
             mamba_proj_bias=True, mlp_bias=True),
    ),
    "nemotron_h": (
        "NemotronHConfig",
        dict({name: size for name, size in SIZES.items() if name != "num_hidden_layers"},
             hybrid_override_pattern="M-*-MM", mamba_num_heads=4, mamba_head_dim=12, n_groups=2,
             ssm_state_size=16, head_dim=12, mlp_bias=True),
    ),
    "nemotron_h_moe": (
        "NemotronHConfig",
        dict({name: size for name, size in SIZES.items() if name != "num_hidden_layers"},
             hybrid_override_pattern="ME*E-", mamba_num_heads=4, mamba_head_dim=12, n_groups=2,
             ssm_state_size=16, head_dim=12, n_routed_experts=6, num_experts_per_tok=3,
             moe_intermediate_size=20, moe_shared_expert_intermediate_size=28, n_group=2,
             routed_scaling_factor=2.5),
    ),
    "hy_v3": (
        "HYV3Config",
        dict(SIZES, head_dim=12, num_experts=6, num_experts_per_tok=3, num_shared_experts=2,
             moe_intermediate_size=20, router_scaling_factor=1.5, rope_parameters=LLAMA3_ROPE
             | {"rope_theta": 5000.0}, mlp_layer_types=["dense", "dense", "sparse", "sparse"]),
    ),
    "kimi_linear": (
        "KimiLinearConfig",
        dict(SIZES, num_key_value_heads=4, kv_lora_rank=9, qk_nope_head_dim=6, qk_rope_head_dim=4,
             v_head_dim=5, num_local_experts=6, num_experts_per_tok=3, moe_intermediate_size=20,
             linear_head_dim=7, linear_num_heads=3, n_group=2, topk_group=1, bos_token_id=3,
             eos_token_id=4, pad_token_id=None),
    ),
    "jamba": (
        "JambaConfig",
        dict(SIZES, attn_layer_period=3, attn_layer_offset=2, mamba_d_state=8, num_experts=6),
    ),
    "jamba_dense": (
        "JambaConfig",
        dict(SIZES, num_experts=1, mamba_expand=3, mamba_d_conv=3, mamba_dt_rank=5,
             mamba_conv_bias=False, mamba_proj_bias=True, tie_word_embeddings=True),
    ),
    "mamba": (
        "MambaConfig",
        dict(vocab_size=96, hidden_size=32, num_hidden_layers=4, state_size=8, expand=3,
             conv_kernel=3, use_bias=True, use_conv_bias=False, layer_norm_epsilon=1e-4),
    ),
    "falcon_mamba": (
        "FalconMambaConfig",
        dict(vocab_size=96, hidden_size=32, num_hidden_layers=4, time_step_rank=5,
             mixer_rms_eps=1e-4, tie_word_embeddings=False, eos_token_id=[3, 4]),
    ),
    "mamba2": (
        "Mamba2Config",
        dict(vocab_size=96, hidden_size=32, num_hidden_layers=4, num_heads=8, head_dim=12,
             expand=3, n_groups=2, state_size=24, use_bias=True, tie_word_embeddings=True),
    ),
    "falcon_h1": (
        "FalconH1Config",
        dict(SIZES, mamba_d_ssm=40, mamba_n_heads=8, mamba_n_groups=2, mamba_d_state=16,
             embedding_multiplier=5.5, lm_head_multiplier=0.25, key_multiplier=0.5,
             attention_in_multiplier=1.5, attention_out_multiplier=0.9, ssm_in_multiplier=1.25,
             ssm_out_multiplier=0.25, mlp_multipliers=[0.75, 0.5],
             ssm_multipliers=[0.5, 0.25, 0.75, 1.5, 0.3], rope_theta=1e11, head_dim=12),
    ),
    "falcon_h1_norm": (
        "FalconH1Config",
        dict(SIZES, mamba_d_ssm=None, mamba_n_heads=4, mamba_d_head=16, mamba_rms_norm=True,
             mamba_norm_before_gate=False, mamba_proj_bias=True, projectors_bias=True,
             attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
    ),
    "granite_moe": (
        "GraniteMoeConfig",
        dict(SIZES, num_local_experts=6, num_experts_per_tok=3, embedding_multiplier=12.0,
             logits_scaling=6.0, residual_multiplier=0.22, attention_multiplier=0.015625,
             tie_word_embeddings=True, rope_theta=10000.0),
    ),
    "granite_moe_shared": (
        "GraniteMoeSharedConfig",
        dict(SIZES, shared_intermediate_size=40, attention_bias=True,
             rope_scaling={"rope_type": "linear", "factor": 2.0}),
    ),
    "ernie4_5_moe": (
        "Ernie4_5_MoeConfig",
        dict(SIZES, moe_num_experts=6, moe_k=3, moe_intermediate_size=20,
             moe_num_shared_experts=1, moe_layer_start_index=2, eos_token_id=[2, 5]),
    ),
    "ernie4_5_moe_interval": (
        "Ernie4_5_MoeConfig",
        dict(SIZES, moe_num_experts=6, moe_k=3, moe_intermediate_size=20,
             moe_num_shared_experts=0, moe_layer_interval=2, moe_layer_end_index=2,
             moe_norm_min=1e-9, tie_word_embeddings=False),
    ),
    "dots1": (
        "Dots1Config",
        dict(SIZES, n_routed_experts=6, n_shared_experts=2, num_experts_per_tok=3,
             moe_intermediate_size=20, first_k_dense_replace=1, norm_topk_prob=True,
             routed_scaling_factor=2.5, max_window_layers=3, sliding_window=16),
    ),
    "dots1_plain": (
        "Dots1Config",
        dict(SIZES, n_routed_experts=6, n_shared_experts=1, num_experts_per_tok=3, n_group=3,
             topk_group=2, moe_intermediate_size=20, attention_bias=True, sliding_window=None,
             bos_token_id=4, eos_token_id=5),
    ),
    "minimax_m2": (
        "MiniMaxM2Config",
        dict(SIZES, num_local_experts=6, num_experts_per_tok=3, head_dim=16, rotary_dim=8,
             bos_token_id=4, eos_token_id=5),
    ),
    "apertus": ("ApertusConfig", dict(SIZES)),
    "apertus_default": (
        "ApertusConfig",
        dict(SIZES, attention_bias=True, tie_word_embeddings=True,
             rope_parameters=dict(rope_type="default", rope_theta=500000.0), pad_token_id=None),
    ),
    "hunyuan_v1_dense": (
        "HunYuanDenseV1Config",
        dict(SIZES, head_dim=16, attention_bias=True, tie_word_embeddings=True),
    ),
    "hunyuan_v1_moe": (
        "HunYuanMoEV1Config",
        dict(SIZES, head_dim=16, num_experts=6, moe_topk=[3] * 4, tie_word_embeddings=True),
    ),
    "hunyuan_v1_moe_number": (
        "HunYuanMoEV1Config",
        dict(SIZES, head_dim=8, num_experts=5, moe_topk=2, attention_bias=True,
             rope_parameters=dict(rope_type="default", rope_theta=500000.0)),
    ),
    "flex_olmo": (
        "FlexOlmoConfig",
        dict(SIZES, num_experts=6, num_experts_per_tok=3, eos_token_id=5, pad_token_id=None),
    ),
    "solar_open": (
        "SolarOpenConfig",
        dict({name: size for name, size in SIZES.items() if name != "intermediate_size"},
             head_dim=16, n_routed_experts=6, num_experts_per_tok=3, moe_intermediate_size=20,
             routed_scaling_factor=2.5, eos_token_id=5),
    ),
    "jais2": ("Jais2Config", dict(SIZES, eos_token_id=5)),
    "iquestcoder": ("IQuestCoderConfig", dict(SIZES, rope_theta=500000.0, attention_bias=True)),
    "cwm": ("CwmConfig", dict(SIZES, head_dim=16, sliding_window=16)),
    "cwm_listed": (
        "CwmConfig",
        dict(SIZES, head_dim=8, sliding_window=16, eos_token_id=5, mlp_bias=True,
             layer_types=["sliding_attention", "full_attention"] * 2,
             rope_parameters=dict(rope_type="default", rope_theta=500000.0)),
    ),
    "olmo_hybrid": (
        "OlmoHybridConfig",
        dict(SIZES, rope_parameters=dict(rope_type="default", rope_theta=None), eos_token_id=5,
             pad_token_id=None),
    ),
    "olmo_hybrid_turned": (
        "OlmoHybridConfig",
        dict({name: size for name, size in DELTA.items() if name != "head_dim"}, rope_theta=500.0,
             linear_allow_neg_eigval=False, linear_conv_kernel_dim=3, attention_bias=True,
             layer_types=["full_attention", "linear_attention"] * 2, pad_token_id=None),
    ),
    "qwen3_5": ("Qwen3_5TextConfig", dict(DELTA)),
    "qwen3_5_listed": (
        "Qwen3_5TextConfig",
        dict(DELTA, linear_conv_kernel_dim=3, attention_bias=True, tie_word_embeddings=True,
             layer_types=["full_attention", "linear_attention"] * 2,
             rope_parameters=dict(rope_type="default", rope_theta=500000.0,
                                  partial_rotary_factor=0.5, mrope_section=[2, 1, 1],
                                  mrope_interleaved=True)),
    ),
    "qwen3_5_moe": (
        "Qwen3_5MoeTextConfig",
        dict(DELTA, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=20,
             shared_expert_intermediate_size=40),
    ),
    "qwen3_next": (
        "Qwen3NextConfig",
        dict(DELTA, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=20,
             shared_expert_intermediate_size=40),
    ),
    "qwen3_next_sparse": (
        "Qwen3NextConfig",
        dict(DELTA, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=20,
             shared_expert_intermediate_size=40, decoder_sparse_step=2, mlp_only_layers=[3],
             norm_topk_prob=False, attention_bias=True,
             layer_types=["linear_attention", "full_attention"] * 2),
    ),
}


def save(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def rope_facts(config):
    rope = getattr(config, "rope_parameters", None) or {}
    rope = dict(rope or getattr(config, "rope_scaling", None) or {})
    sliding = dict(rope.get("sliding_attention", rope))
    rope = rope.get("full_attention", rope)
    # Thetas by layer go before the one of all; of a kind of layers they are the same here.
    thetas = getattr(config, "layer_rope_theta", None) or []
    by_kind = {kind: theta for kind, theta in zip(config.layer_types, thetas) if theta} if thetas else {}
    if by_kind:
        first = by_kind.get("full_attention", by_kind.get("sliding_attention"))
        rope["rope_theta"] = first
        sliding["rope_theta"] = by_kind.get("sliding_attention", first)
    return {
        "theta": rope.get("rope_theta", getattr(config, "rope_theta", None)),
        "sliding_theta": sliding.get("rope_theta", getattr(config, "rope_local_base_freq", None)),
        "type": rope.get("rope_type", rope.get("type", "default")),
        "factor": rope.get("factor", 1.0),
    }


def sliding_layers(config):
    """Which layers use the window, as the modelling code of this transformers decides."""
    window = getattr(config, "sliding_window", None)
    if window is None:
        return []
    types = getattr(config, "layer_types", None)
    count = config.num_hidden_layers
    if getattr(config, "use_sliding_window", True) is False:
        return []
    if types is not None:
        return [i for i in range(count) if types[i] == "sliding_attention"]
    if config.model_type.startswith("qwen"):
        return [i for i in range(count) if i >= config.max_window_layers]
    return list(range(count))


def head_dim(config):
    """Columns of a query and a key."""
    if hasattr(config, "qk_nope_head_dim"):
        return config.qk_nope_head_dim + config.qk_rope_head_dim
    stated = config.to_dict().get("head_dim")  # some layers may have others
    return stated or config.hidden_size // config.num_attention_heads


def facts(config):
    """What a reader must understand from the file, asked of transformers itself."""
    eos = config.eos_token_id
    eos = [] if eos is None else eos if isinstance(eos, list) else [eos]
    heads = {}
    if hasattr(config, "num_attention_heads"):  # else no layer has attention
        heads = {
            "head_count": config.num_attention_heads,
            "kv_head_count": config.to_dict().get(
                "num_key_value_heads", config.num_attention_heads
            ),
            "head_dim": head_dim(config),
            "context_max": config.max_position_embeddings,
        }
    known = {
        "hidden_size": config.hidden_size,
        "layer_count": config.num_hidden_layers,
        **heads,
        "tied": config.tie_word_embeddings,
        "eos": [token for token in eos if token < config.vocab_size],
        "sliding_window": getattr(config, "sliding_window", None) or 0,
        "sliding_layers": sliding_layers(config),
    }
    if heads and config.model_type not in ("gpt2", "nemotron_h", "jamba", "kimi_linear"):
        known["rope"] = rope_facts(config)
    try:
        import torch
        import transformers

        with torch.device("meta"):
            if config.model_type == "mistral4":  # which the other does not know
                model = transformers.Mistral4ForCausalLM(config)
            else:
                model = transformers.AutoModelForCausalLM.from_config(config)
        # Files have what is added to scores for the choice of experts alone, too, and numbers of
        # xIELU.
        ends = ("correction_bias", "expert_bias", "act_fn.beta", "act_fn.eps", "layer_scalar")
        biases = [b for name, b in model.named_buffers() if name.endswith(ends)]
        known["parameters"] = sum(p.numel() for p in [*model.parameters(), *biases])
    except ImportError:
        pass  # the other recording has the count
    return known


def record_configs():
    import transformers

    major, minor = transformers.__version__.split(".")[:2]
    # Most families came after the first recording of version 4.
    label = major if int(major) > 4 or int(minor) < 47 else f"{major}.{minor}"
    folder = ROOT / "configs" / f"transformers-{label}"
    shutil.rmtree(folder, ignore_errors=True)
    expected = {"versions": {"transformers": transformers.__version__}, "cases": {}}
    classes = {"LlamaConfig": "LlamaForCausalLM", "MistralConfig": "MistralForCausalLM",
               "Qwen2Config": "Qwen2ForCausalLM", "Qwen3Config": "Qwen3ForCausalLM",
               "GPT2Config": "GPT2LMHeadModel", "Phi3Config": "Phi3ForCausalLM",
               "Gemma2Config": "Gemma2ForCausalLM", "Gemma3TextConfig": "Gemma3ForCausalLM",
               "Gemma4TextConfig": "Gemma4ForCausalLM",
               "Gemma3nTextConfig": "Gemma3nForCausalLM",
               "Llama4TextConfig": "Llama4ForCausalLM",
               "VaultGemmaConfig": "VaultGemmaForCausalLM",
               "HeliumConfig": "HeliumForCausalLM",
               "MellumConfig": "MellumForCausalLM",
               "HyperCLOVAXConfig": "HyperCLOVAXForCausalLM",
               "GraniteSWAConfig": "GraniteSWAForCausalLM",
               "GraniteMoeSWAConfig": "GraniteMoeSWAForCausalLM",
               "Mistral4Config": "Mistral4ForCausalLM",
               "Lfm3Config": "Lfm3ForCausalLM",
               "NanoChatConfig": "NanoChatForCausalLM", "OlmoConfig": "OlmoForCausalLM",
               "ExaoneConfig": "LlamaForCausalLM", "InternLM3Config": "LlamaForCausalLM",
               "ExaoneMoeConfig": "ExaoneMoeForCausalLM",
               "Olmo2Config": "Olmo2ForCausalLM",
               "GraniteConfig": "GraniteForCausalLM", "SmolLM3Config": "SmolLM3ForCausalLM",
               "Olmo3Config": "Olmo3ForCausalLM", "OlmoeConfig": "OlmoeForCausalLM",
               "Starcoder2Config": "Starcoder2ForCausalLM", "StableLmConfig": "StableLmForCausalLM",
               "SeedOssConfig": "SeedOssForCausalLM", "GPTNeoXConfig": "GPTNeoXForCausalLM",
               "PhiConfig": "PhiForCausalLM", "CohereConfig": "CohereForCausalLM",
               "Qwen2MoeConfig": "Qwen2MoeForCausalLM", "Cohere2Config": "Cohere2ForCausalLM",
               "GemmaConfig": "GemmaForCausalLM", "GlmConfig": "GlmForCausalLM",
               "Glm4Config": "Glm4ForCausalLM", "Exaone4Config": "Exaone4ForCausalLM",
               "Ernie4_5Config": "Ernie4_5ForCausalLM",
               "Ministral3Config": "Ministral3ForCausalLM", "ArceeConfig": "ArceeForCausalLM",
               "NemotronConfig": "NemotronForCausalLM", "YoutuConfig": "YoutuForCausalLM",
               "DeepseekV2Config": "DeepseekV2ForCausalLM",
               "DeepseekV3Config": "DeepseekV3ForCausalLM",
               "MiniCPM3Config": "MiniCPM3ForCausalLM",
               "Glm4MoeConfig": "Glm4MoeForCausalLM",
               "Glm4MoeLiteConfig": "Glm4MoeLiteForCausalLM",
               "Lfm2Config": "Lfm2ForCausalLM", "Lfm2MoeConfig": "Lfm2MoeForCausalLM",
               "Qwen3_5TextConfig": "Qwen3_5ForCausalLM",
               "Qwen3_5MoeTextConfig": "Qwen3_5MoeForCausalLM",
               "Qwen3NextConfig": "Qwen3NextForCausalLM",
               "GraniteMoeHybridConfig": "GraniteMoeHybridForCausalLM",
               "BambaConfig": "BambaForCausalLM", "NemotronHConfig": "NemotronHForCausalLM",
               "FalconH1Config": "FalconH1ForCausalLM",
               "HYV3Config": "HYV3ForCausalLM",
               "JambaConfig": "JambaForCausalLM",
               "KimiLinearConfig": "KimiLinearForCausalLM",
               "MambaConfig": "MambaForCausalLM",
               "FalconMambaConfig": "FalconMambaForCausalLM",
               "Mamba2Config": "Mamba2ForCausalLM",
               "OlmoHybridConfig": "OlmoHybridForCausalLM",
               "HunYuanMoEV1Config": "HunYuanMoEV1ForCausalLM",
               "CwmConfig": "CwmForCausalLM",
               "FlexOlmoConfig": "FlexOlmoForCausalLM",
               "SolarOpenConfig": "SolarOpenForCausalLM",
               "Jais2Config": "Jais2ForCausalLM",
               "IQuestCoderConfig": "IQuestCoderForCausalLM",
               "GraniteMoeConfig": "GraniteMoeForCausalLM",
               "HunYuanDenseV1Config": "HunYuanDenseV1ForCausalLM",
               "ApertusConfig": "ApertusForCausalLM",
               "Dots1Config": "Dots1ForCausalLM",
               "MiniMaxM2Config": "MiniMaxM2ForCausalLM",
               "Ernie4_5_MoeConfig": "Ernie4_5_MoeForCausalLM",
               "GraniteMoeSharedConfig": "GraniteMoeSharedForCausalLM"}
    for name, (kind, arguments) in CASES.items():
        if not hasattr(transformers, kind):
            continue
        config = getattr(transformers, kind)(architectures=[classes[kind]], **arguments)
        with tempfile.TemporaryDirectory() as scratch:
            config.save_pretrained(scratch)
            text = (pathlib.Path(scratch) / "config.json").read_text()
        save(folder / f"{name}.json", text)
        expected["cases"][name] = facts(config)
    generation = transformers.GenerationConfig(
        do_sample=True, temperature=0.7, top_k=20, top_p=0.8, repetition_penalty=1.05,
        max_new_tokens=64, eos_token_id=[5, 6], bos_token_id=4, pad_token_id=0)
    with tempfile.TemporaryDirectory() as scratch:
        generation.save_pretrained(scratch)
        text = (pathlib.Path(scratch) / "generation_config.json").read_text()
    save(folder / "generation_config.json", text)
    save(folder / "expected.json", json.dumps(expected, indent=1) + "\n")


def record_weights():
    import peft
    import safetensors
    import safetensors.torch
    import torch
    import transformers

    folder = ROOT / "weights"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    ramp = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    tensors = {
        "f32": ramp + 0.5,
        "bf16": (ramp - 2).to(torch.bfloat16),
        "f16": (ramp / 4).to(torch.float16),
        "i8": (ramp - 3).to(torch.int8),
        "i32": (ramp * 1000).to(torch.int32),
        "i64": ramp.to(torch.int64) * 10**10,
        "u8": (ramp + 250).to(torch.uint8),
        "f64": ramp.to(torch.float64),
        "bool": ramp > 2,
        "f8": ramp.to(torch.float8_e4m3fn),
        "scalar": torch.tensor(7.0),
        "none": torch.zeros(0, 4),
        "rank5": torch.zeros(1, 1, 1, 1, 2),
        "quote\" and é": torch.ones(1),
    }
    safetensors.torch.save_file(tensors, folder / "all_types.safetensors", {"format": "pt"})
    readable = {name: tensors[name].contiguous() for name in
                ("f32", "bf16", "f16", "i8", "i32", "i64", "u8", "scalar", "none", "quote\" and é")}
    safetensors.torch.save_file(readable, folder / "readable.safetensors", {"format": "pt"})

    torch.manual_seed(1)
    config = transformers.LlamaConfig(**dict(SIZES, num_hidden_layers=1))
    model = transformers.LlamaForCausalLM(config)
    model.name_or_path = "base"
    sums = {name: float(value.double().sum()) for name, value in model.state_dict().items()}
    with tempfile.TemporaryDirectory() as scratch:
        model.save_pretrained(scratch, max_shard_size="12KB")
        shutil.copytree(scratch, folder / "sharded_llama")
        adapted = peft.get_peft_model(
            model, peft.LoraConfig(r=2, lora_alpha=4, target_modules=["q_proj", "v_proj"],
                                   task_type="CAUSAL_LM", base_model_name_or_path="base"))
        adapted.save_pretrained(folder / "adapter")
    (folder / "adapter" / "README.md").unlink(missing_ok=True)
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    save(folder / "expected.json", json.dumps({
        "versions": {"safetensors": safetensors.__version__, "torch": torch.__version__,
                     "transformers": transformers.__version__, "peft": peft.__version__},
        "sharded_llama_sums": sums,
    }, indent=1) + "\n")


def container(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(dtype="F32", shape=(2,), offsets=(0, 8), **more):
    return dict({"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}, **more)


def nested_lists(depth):
    return [nested_lists(depth - 1)] if depth else []


def record_lies():
    """One safetensors file per kind of lie, with words the error must hold."""
    eight = b"\0" * 8
    good = container({"a": tensor()}, eight)
    huge = 2**62
    entry = b'{"dtype":"F32","shape":[2],"data_offsets":[0,8]}'
    lies = {
        "empty_file": (b"", "too few"),
        "seven_bytes": (b"\1\0\0\0\0\0\0", "too few"),
        "length_beyond_file": (container({"a": tensor()}, eight, length=10**6), "truncated"),
        "length_all_ones": (container({"a": tensor()}, eight, length=2**64 - 1), "truncated"),
        "length_zero": (container({"a": tensor()}, eight, length=0), "does not begin"),
        "length_short": (container({"a": tensor()}, eight, length=20), "not valid JSON"),
        "length_long": (container({"a": tensor()}, eight, length=len(good) - 10), "JSON"),
        "truncated_header": (good[:30], "truncated"),
        "truncated_data": (good[:-1], "truncated"),
        "one_byte_more": (good + b"\0", "after the last tensor"),
        "leading_space": (container(b' {"a":' + entry + b"}", eight), "does not begin"),
        "not_an_object": (container(b"[1,2,3]"), "does not begin"),
        "broken_json": (container(b'{"a":' + entry, eight), "not valid JSON"),
        "nul_in_header": (container(b'{"a":' + entry + b"}\0{", eight), "NUL"),
        "invalid_utf8": (container(b'{"\xff\xfe":' + entry + b"}", eight), "not valid JSON"),
        "text_after_header": (container(b'{"a":' + entry + b"} x", eight), "not valid JSON"),
        "duplicate_name": (container(b'{"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"a":'
                                     + entry + b"}", eight), "appears twice"),
        "duplicate_field": (container(b'{"a":{"dtype":"F32","dtype":"F32","shape":[2],'
                                      b'"data_offsets":[0,8]}}', eight), "appears twice"),
        "duplicate_metadata": (container(b'{"__metadata__":{},"__metadata__":{},"a":' + entry + b"}",
                                         eight), "appears twice"),
        "metadata_number": (container({"__metadata__": {"step": 1}, "a": tensor()}, eight),
                            "unexpected a number"),
        "metadata_text": (container(b'{"__metadata__":"pt","a":' + entry + b"}", eight),
                          "unexpected a string"),
        "entry_number": (container({"a": 1}, eight), "unexpected a number"),
        "entry_null": (container({"a": None}, eight), "unexpected null"),
        "no_dtype": (container({"a": {"shape": [2], "data_offsets": [0, 8]}}, eight), "missing"),
        "no_shape": (container({"a": {"dtype": "F32", "data_offsets": [0, 8]}}, eight), "missing"),
        "no_offsets": (container({"a": {"dtype": "F32", "shape": [2]}}, eight), "missing"),
        "dtype_number": (container({"a": tensor(dtype=32)}, eight), "unexpected a number"),
        "shape_negative": (container({"a": tensor(shape=[-2])}, eight), "negative"),
        "shape_fraction": (container({"a": tensor(shape=[2.0])}, eight), "fraction"),
        "shape_text": (container({"a": tensor(shape=["2"])}, eight), "unexpected a string"),
        "shape_too_large": (container({"a": tensor(shape=[2**63])}, eight), "too large"),
        "shape_beyond_u64": (container({"a": tensor(shape=[2**70])}, eight), "fraction"),
        "shape_nested": (container({"a": tensor(shape=[[2]])}, eight), "unexpected an array"),
        "shape_overflow": (container({"a": tensor(shape=[huge, huge])}, eight), "overflows"),
        "shape_wraps_to_size": (container({"a": tensor(shape=[2**63 - 1, 2, 2])}, eight), "overflows"),
        "shape_zero_hides_overflow": (container({"a": tensor(shape=[0, huge, huge], offsets=[0, 0])}),
                                      "overflows"),
        "shape_rank": (container({"a": tensor(shape=[1] * 70 + [2])}, eight), "dimensions"),
        "shape_too_small": (container({"a": tensor(shape=[1])}, eight), "need 4 bytes"),
        "shape_too_big": (container({"a": tensor(shape=[3])}, eight), "need 12 bytes"),
        "dtype_size": (container({"a": tensor(dtype="F64")}, eight), "need 16 bytes"),
        "half_bytes": (container({"a": tensor(dtype="F4", shape=[3], offsets=[0, 1])}, b"\0"), "need"),
        "offsets_one": (container({"a": tensor(offsets=[0])}, eight), "two numbers"),
        "offsets_three": (container({"a": tensor(offsets=[0, 8, 8])}, eight), "unexpected a number"),
        "offsets_backwards": (container({"a": tensor(offsets=[8, 0])}, eight), "backwards"),
        "offsets_negative": (container({"a": tensor(offsets=[-8, 0])}, eight), "negative"),
        "offsets_beyond": (container({"a": tensor(offsets=[8, 16])}, eight), "has only 8"),
        "offsets_huge": (container({"a": tensor(offsets=[0, 2**64 - 1])}, eight), "has only 8"),
        "offsets_overlap": (container({"a": tensor(), "b": tensor(offsets=[4, 12])}, eight + b"\0" * 4),
                            "inside the tensor"),
        "offsets_same": (container({"a": tensor(), "b": tensor()}, eight), "inside the tensor"),
        "offsets_gap": (container({"a": tensor(), "b": tensor(offsets=[12, 20])}, b"\0" * 20), "gap"),
        "offsets_gap_first": (container({"a": tensor(offsets=[4, 12])}, b"\0" * 12), "gap"),
        "deep_unknown_field": (container({"a": tensor(note=nested_lists(40))}, eight), "deep"),
    }
    folder = ROOT / "lies"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, (content, _) in lies.items():
        (folder / f"{name}.safetensors").write_bytes(content)
    save(folder / "expected.json", json.dumps({k: v[1] for k, v in lies.items()}, indent=1) + "\n")


if __name__ == "__main__":
    parts = {"configs": record_configs, "weights": record_weights, "lies": record_lies}
    for part in sys.argv[1:] or sys.exit(__doc__):
        parts[part]()
