"""What the configurations of tiny models share."""

import dataclasses

import torch
import transformers

VOCAB = 96
WIDTH = 32
COMMON = dict(
    vocab_size=VOCAB,
    hidden_size=WIDTH,
    intermediate_size=40,
    num_hidden_layers=2,
    max_position_embeddings=128,
    bos_token_id=1,
    eos_token_id=2,
)
LLAMA3_ROPE = dict(
    rope_type="llama3",
    rope_theta=500000.0,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=32,
)
YARN = dict(
    rope_type="yarn",
    rope_theta=150000.0,
    factor=4.0,
    beta_fast=8.0,
    beta_slow=1.0,
    truncate=False,
    original_max_position_embeddings=32,
)
# What reads images.
SEES = dict(
    hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, head_dim=8
)


@dataclasses.dataclass(frozen=True)
class TinyModel:
    model_class: type
    config: transformers.PretrainedConfig
    dtype: torch.dtype  # that it is stored in
    seed: int
    gradients: bool = True  # are recorded, too
    steps: bool = False  # of training are recorded
    save_options: dict = dataclasses.field(default_factory=dict)  # of save_pretrained
