"""Models before Llama; GPT-2 and GPT-NeoX are with the dense ones."""

GPT = dict(vocab_size=96, n_embd=32, n_layer=2, n_positions=64, bos_token_id=1, eos_token_id=2)
OPT = dict(vocab_size=96, hidden_size=32, ffn_dim=48, num_hidden_layers=2, num_attention_heads=4)
GPT_NEO = dict(vocab_size=96, hidden_size=32, num_heads=4, max_position_embeddings=64)
FALCON = dict(vocab_size=96, hidden_size=64, num_hidden_layers=2, num_attention_heads=8)

CASES = {
    "gpt_bigcode": ("GPTBigCodeConfig", dict(GPT, n_head=4)),
    "gpt_bigcode_keys": (
        "GPTBigCodeConfig",
        dict(GPT, n_head=4, multi_query=False, n_inner=48, activation_function="gelu",
             scale_attn_weights=False, tie_word_embeddings=False),
    ),
    "opt": ("OPTConfig", dict(OPT)),
    "opt_bare": (
        "OPTConfig",
        dict(OPT, enable_bias=False, layer_norm_elementwise_affine=False,
             activation_function="gelu", max_position_embeddings=64),
    ),
    "gpt_neo": ("GPTNeoConfig", dict(GPT_NEO, num_layers=24, bos_token_id=1, eos_token_id=2)),
    "gpt_neo_local": (
        "GPTNeoConfig",
        dict(GPT_NEO, num_layers=3, attention_types=[[["local"], 2], [["global"], 1]],
             window_size=16, intermediate_size=48),
    ),
    "gptj": ("GPTJConfig", dict(GPT, n_head=4, rotary_dim=4)),
    "gptj_whole_heads": ("GPTJConfig", dict(GPT, n_head=4, rotary_dim=8, n_inner=48)),
    "falcon": ("FalconConfig", dict(FALCON)),
    "falcon_new": (
        "FalconConfig",
        dict(FALCON, new_decoder_architecture=True, num_kv_heads=2, bias=True,
             tie_word_embeddings=False),
    ),
    "falcon_one_norm": (
        "FalconConfig",
        dict(FALCON, new_decoder_architecture=True, num_kv_heads=4, num_ln_in_parallel_attn=1,
             ffn_hidden_size=48, max_position_embeddings=64, rope_theta=500042.0),
    ),
    "falcon_sequential": (
        "FalconConfig", dict(FALCON, parallel_attn=False, multi_query=False),
    ),
}
