"""Greedy decoding at batch 1, and prompt processing, of a model in PyTorch; prints one JSON object.

A plain loop over the model with its key/value cache, which is faster than `generate`. Decoding
begins with one token, as in `jige bench`. With --compile the step of decoding is compiled as
`generate(cache_implementation="static")` does it: a static cache and torch.compile of mode
reduce-overhead, which records a CUDA graph on a GPU. Prompts are not compiled there either.
"""
import argparse
import inspect

from model_peer import (add_shape_flags, import_libraries, make_model, report, time_runs,
                        wait)


def rates(name, tokens, times):
    """Tokens a second: the median with the slowest and the fastest run."""
    return {name: {"value": tokens / times[len(times) // 2], "slowest": tokens / times[-1],
                   "fastest": tokens / times[0], "runs": len(times)}}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    add_shape_flags(parser)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=2, help="of each of the two")
    parser.add_argument("--compile", action="store_true", help="the step of decoding")
    args = parser.parse_args()

    torch, transformers = import_libraries(args)
    model = make_model(torch, transformers, args,
                       torch.bfloat16 if args.dtype == "bf16" else torch.float32)
    model.eval()
    prompt = torch.randint(model.config.vocab_size, (1, args.prompt)).to(args.device)

    def prefill():
        model(input_ids=prompt, use_cache=True, logits_to_keep=1).logits[:, -1:].argmax(-1)
        wait(torch, args)

    # Models without attention have no keys and values in it, and another name for it.
    cache_name = ("cache_params" if "cache_params" in inspect.signature(model.forward).parameters
                  else "past_key_values")

    def decode_with(forward, cache):
        token = prompt[0, :1].unsqueeze(0)
        for _ in range(args.new):
            out = forward(input_ids=token, **{cache_name: cache}, use_cache=True)
            cache = out[cache_name]
            token = out.logits[:, -1:].argmax(-1)
        wait(torch, args)

    def decode():
        decode_with(model, None)

    # Graphs do not go with tensors of the inference mode.
    with torch.no_grad() if args.compile else torch.inference_mode():
        found = rates("prefill", args.prompt, time_runs(prefill, args.seconds, 2))
        if args.compile:
            cache = transformers.StaticCache(config=model.config, max_cache_len=args.new)
            # The first call makes the cache's tensors, which graphs then take for fixed.
            model(input_ids=prompt[0, :1].unsqueeze(0), past_key_values=cache, use_cache=True)
            compiled = torch.compile(model.__call__, mode="reduce-overhead")

            def decode():
                cache.reset()
                decode_with(compiled, cache)

        found.update(rates("decode", args.new, time_runs(decode, args.seconds, 2)))
    report(torch, transformers, args, **found)


if __name__ == "__main__":
    main()
