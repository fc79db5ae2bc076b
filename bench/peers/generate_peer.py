"""Greedy decoding at batch 1, and prompt processing, of a model in PyTorch on the CPU.

A plain loop over the model with its key/value cache, which is faster than `generate`; prints one
JSON object.
"""
import argparse
import time

from model_peer import add_shape_flags, import_libraries, make_model, report


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    add_shape_flags(parser)
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="bf16")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()

    torch, transformers = import_libraries()
    torch.set_num_threads(args.threads)
    model = make_model(torch, transformers, args,
                       torch.bfloat16 if args.dtype == "bf16" else torch.float32)
    model.eval()
    prompt = torch.randint(model.config.vocab_size, (1, args.prompt))

    def run():
        start = time.perf_counter()
        out = model(input_ids=prompt, use_cache=True, logits_to_keep=1)
        token = out.logits[:, -1:].argmax(-1)
        prefilled = time.perf_counter()
        for _ in range(args.new):
            out = model(input_ids=token, past_key_values=out.past_key_values, use_cache=True)
            token = out.logits[:, -1:].argmax(-1)
        return prefilled - start, time.perf_counter() - prefilled

    with torch.inference_mode():
        run()
        results = [run() for _ in range(args.repeats)]
    prefill = sorted(r[0] for r in results)[len(results) // 2]
    decode = sorted(r[1] for r in results)[len(results) // 2]
    report(torch, transformers, prefill_tokens_per_s=args.prompt / prefill,
           decode_tokens_per_s=args.new / decode)


if __name__ == "__main__":
    main()
