"""Families before Llama; GPT-2 and GPT-NeoX are with the dense ones."""

import torch
from transformers import (
    FalconConfig,
    FalconForCausalLM,
    GPTBigCodeConfig,
    GPTBigCodeForCausalLM,
    GPTJConfig,
    GPTJForCausalLM,
    GPTNeoConfig,
    GPTNeoForCausalLM,
    OPTConfig,
    OPTForCausalLM,
)

from tiny_models.common import TinyModel, VOCAB, WIDTH

IDS = dict(bos_token_id=1, eos_token_id=2)
GPT = dict(
    vocab_size=VOCAB, n_embd=WIDTH, n_layer=2, n_positions=128, n_inner=40, attn_pdrop=0.0,
    resid_pdrop=0.0, embd_pdrop=0.0, **IDS,
)
OPT = dict(
    vocab_size=VOCAB, hidden_size=WIDTH, ffn_dim=40, num_hidden_layers=2, num_attention_heads=4,
    max_position_embeddings=128, word_embed_proj_dim=WIDTH, dropout=0.0, pad_token_id=0, **IDS,
)
GPT_NEO = dict(
    vocab_size=VOCAB, hidden_size=WIDTH, num_layers=3, num_heads=4, window_size=9,
    max_position_embeddings=128, intermediate_size=40,
    attention_types=[[["global", "local"], 1], [["global"], 1]], **IDS,
)
FALCON = dict(
    vocab_size=VOCAB, hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=4,
    ffn_hidden_size=40, max_position_embeddings=128, **IDS,
)

MODELS = {
    "gpt_bigcode": TinyModel(
        GPTBigCodeForCausalLM,
        GPTBigCodeConfig(**GPT, n_head=4),
        torch.float32,
        seed=1201,
    ),
    # Every head has a key.
    "gpt_bigcode_keys": TinyModel(
        GPTBigCodeForCausalLM,
        GPTBigCodeConfig(**GPT, n_head=4, multi_query=False),
        torch.bfloat16,
        seed=1224,
    ),
    "opt": TinyModel(OPTForCausalLM, OPTConfig(**OPT), torch.float32, seed=1203),
    # As Galactica is.
    "opt_bare": TinyModel(
        OPTForCausalLM,
        OPTConfig(
            **OPT, enable_bias=False, layer_norm_elementwise_affine=False,
            activation_function="gelu",
        ),
        torch.bfloat16,
        seed=1204,
    ),
    "gpt_neo": TinyModel(GPTNeoForCausalLM, GPTNeoConfig(**GPT_NEO), torch.float32, seed=1246),
    "gptj": TinyModel(
        GPTJForCausalLM, GPTJConfig(**GPT, n_head=2, rotary_dim=6), torch.float32, seed=1206
    ),
    # As the 7B is: one head of keys, parts side by side behind one norm.
    "falcon": TinyModel(
        FalconForCausalLM, FalconConfig(**FALCON), torch.bfloat16, seed=1207
    ),
    # As the 40B is: heads of keys, a norm for each part.
    "falcon_norms": TinyModel(
        FalconForCausalLM,
        FalconConfig(
            **FALCON | dict(num_attention_heads=8), new_decoder_architecture=True, num_kv_heads=2,
            tie_word_embeddings=False,
        ),
        torch.float32,
        seed=1208,
    ),
    # As the 11B is: the same with one norm, and another base.
    "falcon_groups": TinyModel(
        FalconForCausalLM,
        FalconConfig(
            **FALCON | dict(num_attention_heads=8), new_decoder_architecture=True, num_kv_heads=4,
            num_ln_in_parallel_attn=1,
            rope_parameters=dict(rope_type="linear", factor=2.0, rope_theta=500042.0),
        ),
        torch.float32,
        seed=1209,
    ),
    "falcon_sequential": TinyModel(
        FalconForCausalLM,
        FalconConfig(
            **FALCON, parallel_attn=False, multi_query=False, bias=True, activation="gelu_new"
        ),
        torch.float32,
        seed=1240,
    ),
}
