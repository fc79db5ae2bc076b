"""One rank of Gloo's all-reduce, through PyTorch. Rank 0 prints {"peer", "seconds": [of each]}."""
import argparse
import json
import os
import sys
import time

try:
    import torch
    import torch.distributed as dist
except ImportError as error:
    print(error, file=sys.stderr)
    sys.exit(77)

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--rank", type=int, required=True)
parser.add_argument("--world", type=int, required=True)
parser.add_argument("--rendezvous", required=True, help="ADDRESS:PORT of rank 0")
parser.add_argument("--interface", required=True)
parser.add_argument("--mib", type=int, required=True)
parser.add_argument("--repeats", type=int, default=3)
args = parser.parse_args()

torch.set_num_threads(1)
os.environ["GLOO_SOCKET_IFNAME"] = args.interface
dist.init_process_group("gloo", init_method=f"tcp://{args.rendezvous}", rank=args.rank,
                        world_size=args.world)
seconds = []
for repeat in range(args.repeats + 1):
    data = torch.full((args.mib << 18,), float(args.rank + 1))
    dist.barrier()
    start = time.monotonic()
    dist.all_reduce(data)
    if repeat > 0:  # the first one warms up
        seconds.append(time.monotonic() - start)
    if data[0].item() != args.world * (args.world + 1) / 2 or data[-1] != data[0]:
        sys.exit("error: Gloo's sum is wrong")
# The slowest rank counts.
slowest = torch.tensor(seconds, dtype=torch.float64)
dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
if args.rank == 0:
    print(json.dumps({"peer": f"Gloo (PyTorch {torch.__version__})", "seconds": slowest.tolist()}))
