"""Dense models: attention and a feed-forward part in every layer."""

from configurations.common import LLAMA3_ROPE, SIZES

GPT_NEOX = {name: size for name, size in SIZES.items() if name != "num_key_value_heads"}
QWEN_WINDOW = dict(use_sliding_window=True, sliding_window=16, max_window_layers=2)

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
    "ministral": ("MinistralConfig", dict(SIZES, head_dim=16)),
    "ministral_listed": (
        "MinistralConfig",
        dict(SIZES, head_dim=8, sliding_window=16,
             layer_types=["full_attention", "sliding_attention"] * 2),
    ),
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
    "helium": ("HeliumConfig", dict(SIZES, head_dim=8, attention_bias=True)),
    "hyperclovax": (
        "HyperCLOVAXConfig",
        dict(SIZES, head_dim=16, embedding_multiplier=3.0, logits_scaling=0.25),
    ),
    "hyperclovax_bare": (
        "HyperCLOVAXConfig",
        dict(SIZES, use_post_norm=False, attention_multiplier=0.5, mlp_bias=True),
    ),
    "nanochat": ("NanoChatConfig", dict(SIZES, attention_bias=True, hidden_act="gelu")),
    "olmo": ("OlmoConfig", dict(SIZES, attention_bias=True, tie_word_embeddings=True)),
    "exaone": ("ExaoneConfig", dict(SIZES, rope_scaling=LLAMA3_ROPE)),
    "internlm3": (
        "InternLM3Config",
        dict(SIZES, head_dim=16, attention_bias=True, mlp_bias=True),
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
    "smollm3": ("SmolLM3Config", dict(SIZES, eos_token_id=7, bos_token_id=4, pad_token_id=3)),
    "smollm3_window": (
        "SmolLM3Config",
        dict(SIZES, use_sliding_window=True, sliding_window=16, no_rope_layers=[0, 1, 1, 0],
             eos_token_id=7, bos_token_id=4, pad_token_id=3, mlp_bias=True),
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
    "jais2": ("Jais2Config", dict(SIZES, eos_token_id=5)),
    "iquestcoder": ("IQuestCoderConfig", dict(SIZES, rope_theta=500000.0, attention_bias=True)),
    "cwm": ("CwmConfig", dict(SIZES, head_dim=16, sliding_window=16)),
    "cwm_listed": (
        "CwmConfig",
        dict(SIZES, head_dim=8, sliding_window=16, eos_token_id=5, mlp_bias=True,
             layer_types=["sliding_attention", "full_attention"] * 2,
             rope_parameters=dict(rope_type="default", rope_theta=500000.0)),
    ),
}
