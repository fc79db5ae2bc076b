"""The Llama shapes of `jige bench`, and others by their config.json, as Hugging Face transformers
builds them, for comparisons.

Imported by the peers that run PyTorch; needs torch and, for models, transformers.
"""
import importlib
import json
import sys
import time

RUNS_MIN = 3

# Same names and numbers as src/cli/model_sizes.cc.
SIZES = {
    "15m": dict(hidden_size=288, num_hidden_layers=6, num_attention_heads=6, num_key_value_heads=6,
                intermediate_size=768, vocab_size=32000, max_position_embeddings=1024),
    "110m": dict(hidden_size=768, num_hidden_layers=12, num_attention_heads=12,
                 num_key_value_heads=12, intermediate_size=2048, vocab_size=32000,
                 max_position_embeddings=1024),
}


def skip(reason):
    """Exit code 77 with the reason: the driver then skips."""
    print(reason, file=sys.stderr)
    sys.exit(77)


def import_torch(args):
    """torch with its threads set, where it reaches the device; or the skip."""
    try:
        import torch
    except ImportError as error:
        skip(f"peer not importable: {error}")
    if args.device == "cuda" and not torch.cuda.is_available():
        skip(f"torch {torch.__version__} finds no GPU")
    torch.set_num_threads(args.threads)
    return torch


def import_libraries(args, *more):
    """torch, transformers and more modules by name, or the skip."""
    torch = import_torch(args)
    try:
        return torch, *[importlib.import_module(name) for name in ("transformers", *more)]
    except ImportError as error:
        skip(f"peer not importable: {error}")


def add_device_flags(parser):
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="bf16")


def add_shape_flags(parser):
    parser.add_argument("--size", choices=SIZES, default="15m")
    parser.add_argument("--config", help="a config.json in place of a size")
    add_device_flags(parser)


def time_runs(run, seconds, warm_up):
    """Seconds of each run, sorted; the first ones do not count: they compile and record graphs."""
    for _ in range(warm_up):
        run()
    times, begin = [], time.perf_counter()
    while len(times) < RUNS_MIN or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return sorted(times)


def wait(torch, args):
    """Until all that was asked of the device is done."""
    if args.device == "cuda":
        torch.cuda.synchronize()


def make_model(torch, transformers, args, dtype):
    """With random weights, made where they stay."""
    torch.manual_seed(1)
    if args.config:
        config = transformers.AutoConfig.from_pretrained(args.config)
    else:
        config = transformers.LlamaConfig(**SIZES[args.size], tie_word_embeddings=True)
    config.use_cache = True
    with torch.device(args.device):
        return transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)


def libraries(torch, transformers, args):
    """Their names and versions; for a GPU its name, too."""
    text = f"torch {torch.__version__}"
    if transformers:
        text += f", transformers {transformers.__version__}"
    return text + (f" on {torch.cuda.get_device_name()}" if args.device == "cuda" else "")


def report(torch, transformers, args, **values):
    values["peer"] = libraries(torch, transformers, args)
    print(json.dumps(values), flush=True)
