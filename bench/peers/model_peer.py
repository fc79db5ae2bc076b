"""The Llama shapes of `jige bench`, and others by their config.json, as Hugging Face transformers
builds them, for comparisons.

Imported by train_peer.py and generate_peer.py; needs torch and transformers.
"""
import json
import sys

# Same names and numbers as src/cli/model_sizes.cc.
SIZES = {
    "15m": dict(hidden_size=288, num_hidden_layers=6, num_attention_heads=6, num_key_value_heads=6,
                intermediate_size=768, vocab_size=32000, max_position_embeddings=1024),
    "110m": dict(hidden_size=768, num_hidden_layers=12, num_attention_heads=12,
                 num_key_value_heads=12, intermediate_size=2048, vocab_size=32000,
                 max_position_embeddings=1024),
}


def import_libraries():
    """torch and transformers, or exit code 77 with the reason: the driver then skips."""
    try:
        import torch
        import transformers
    except ImportError as error:
        print(f"peer not importable: {error}", file=sys.stderr)
        sys.exit(77)
    return torch, transformers


def add_shape_flags(parser):
    parser.add_argument("--size", choices=SIZES, default="15m")
    parser.add_argument("--config", help="a config.json in place of a size")


def make_model(torch, transformers, args, dtype):
    torch.manual_seed(1)
    if args.config:
        config = transformers.AutoConfig.from_pretrained(args.config)
    else:
        config = transformers.LlamaConfig(**SIZES[args.size], tie_word_embeddings=True)
    config.use_cache = True
    config._attn_implementation = "sdpa"
    model = transformers.AutoModelForCausalLM.from_config(config)
    return model.to(dtype)


def report(torch, transformers, **values):
    values["peer"] = f"torch {torch.__version__}, transformers {transformers.__version__}"
    print(json.dumps(values), flush=True)
