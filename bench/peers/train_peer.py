"""Steps of training a model in PyTorch, as asked for; JSON lines.

The first line names the peer. Then every line of the standard input asks for a step, which is
answered by its seconds.
f32: everything in f32. bf16: f32 master weights, matrix products and attention in bf16 (autocast),
which is what Jige's bf16 is. Optimizer: fused AdamW with gradient clipping, as in Jige's step.
Attention is scaled_dot_product_attention, causal and without a mask: flash attention on a GPU.
"""
import argparse
import json
import sys
import time

from model_peer import add_shape_flags, import_libraries, make_model, report, wait


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    add_shape_flags(parser)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--batch-tokens", type=int, default=2048)
    parser.add_argument("--compile", action="store_true", help="torch.compile the model")
    args = parser.parse_args()

    torch, transformers = import_libraries(args)
    model = make_model(torch, transformers, args, torch.float32)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95),
                                  weight_decay=0.1, fused=True)
    forward = torch.compile(model) if args.compile else model
    rows = args.batch_tokens // args.context
    vocabulary = model.config.vocab_size
    generator = torch.Generator().manual_seed(1)

    def step():
        tokens = torch.randint(vocabulary, (rows, args.context), generator=generator)
        tokens = tokens.to(args.device)
        with torch.autocast(args.device, dtype=torch.bfloat16, enabled=args.dtype == "bf16"):
            loss = forward(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())

    report(torch, transformers, args)
    for _ in sys.stdin:
        start = time.perf_counter()
        step()
        wait(torch, args)
        print(json.dumps({"name": "step", "value": time.perf_counter() - start}), flush=True)


if __name__ == "__main__":
    main()
