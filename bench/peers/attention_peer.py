"""Causal attention, forward, by PyTorch's scaled_dot_product_attention; a JSON line for each shape.

Operations are counted as in `jige bench attention`: products of the pairs that the mask leaves.
"""
import argparse

from model_peer import add_device_flags, import_torch, report, time_runs, wait

BACKENDS = {"flash": "FLASH_ATTENTION", "cudnn": "CUDNN_ATTENTION", "math": "MATH"}


def read_shape(text):
    """heads,kv_heads,head_dim,context,sequences"""
    numbers = [int(part) for part in text.split(",")]
    if len(numbers) != 5 or min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not five numbers")
    return numbers


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    add_device_flags(parser)
    parser.add_argument("--backend", choices=BACKENDS, default="flash")
    parser.add_argument("--seconds", type=float, default=1, help="of each shape")
    parser.add_argument("shapes", type=read_shape, nargs="+", metavar="SHAPE",
                        help=read_shape.__doc__)
    args = parser.parse_args()

    torch = import_torch(args)
    from torch.nn.attention import SDPBackend, sdpa_kernel
    backend = getattr(SDPBackend, BACKENDS[args.backend])
    dtype = torch.bfloat16 if args.dtype == "bf16" else torch.float32
    torch.manual_seed(1)
    for heads, kv_heads, head_dim, context, sequences in args.shapes:
        def random_heads(count):
            return torch.rand(sequences, context, count, head_dim, device=args.device,
                              dtype=dtype).sub_(0.5).transpose(1, 2)

        q, k, v = random_heads(heads), random_heads(kv_heads), random_heads(kv_heads)

        def run():
            torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=True, enable_gqa=kv_heads != heads)
            wait(torch, args)

        with torch.inference_mode(), sdpa_kernel(backend):
            times = time_runs(run, args.seconds, 3)
        work = 4 * sequences * context * (context + 1) / 2 * heads * head_dim / 1e9
        report(torch, None, args, value=work / times[len(times) // 2], slowest=work / times[-1],
               fastest=work / times[0], runs=len(times))


if __name__ == "__main__":
    main()
