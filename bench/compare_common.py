"""What compare_train and compare_generate share: running Jige and a peer in turns and comparing."""
import json
import os
import shutil
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SKIP = 77  # exit code of a peer that is not there, and of a comparison without one


def add_common_flags(parser):
    parser.add_argument("--jige", default=None,
                        help="the binary; by default build/release/jige, else build/bench/jige")
    parser.add_argument("--python", default="python3",
                        help="a Python that has torch and transformers")
    parser.add_argument("--size", choices=["15m", "110m"], action="append",
                        help="shapes to compare; both by default")
    parser.add_argument("--dtype", choices=["auto", "f32", "bf16"], default="auto",
                        help="auto: bf16 where the processor has instructions for it, else f32")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3, help="each runs Jige, then the peer")
    parser.add_argument("--seconds", type=float, default=10, help="of each run")
    parser.add_argument("--json", action="store_true", help="one JSON line a comparison")


def find_jige(given):
    root = os.path.dirname(HERE)
    for path in [given] if given else [os.path.join(root, "build", preset, "jige")
                                       for preset in ("release", "bench", "dev")]:
        if os.path.exists(path):
            return path
    sys.exit("error: no jige binary; build it (cmake --workflow or ./quickstart.sh) or use --jige")


def machine(jige):
    """Processor, instruction set and the type `auto` stands for."""
    version = json.loads(subprocess.run([jige, "version", "--json"], check=True,
                                        capture_output=True).stdout)
    features = version["cpu"]["features"]
    fast_bf16 = "amx_bf16" in features or "avx512_bf16" in features
    return version, "bf16" if fast_bf16 else "f32"


def run_jige_bench(jige, subject, arguments):
    """Tokens per second by name, as `jige bench` measured them (medians)."""
    out = subprocess.run([jige, "bench", subject, "--json"] + arguments, check=True,
                         capture_output=True, text=True).stdout
    records = [json.loads(line) for line in out.splitlines()]
    return {r["name"]: r["value"] for r in records if r.get("unit") == "tokens/s"}


def run_peer(python, script, arguments):
    """The peer's JSON, or None where its libraries are missing."""
    if not shutil.which(python):
        print(f"skipped: {python} is not there", file=sys.stderr)
        return None
    result = subprocess.run([python, os.path.join(HERE, "peers", script)] + arguments,
                            capture_output=True, text=True)
    if result.returncode == SKIP:
        print(f"skipped: {result.stderr.strip()}; name a Python with --python", file=sys.stderr)
        return None
    if result.returncode != 0:
        sys.exit(f"error: {script} failed:\n{result.stderr}")
    return json.loads(result.stdout.strip().splitlines()[-1])


def show(args, version, title, jige_rates, peer_rates, peer):
    """One comparison: medians, and the ratio of each round with its spread."""
    ratios = sorted(j / p for j, p in zip(jige_rates, peer_rates))
    record = {
        "comparison": title, "threads": args.threads, "cpu": version["cpu"]["model"],
        "isa": version["cpu"]["isa"], "jige": version["version"], "peer": peer,
        "jige_tokens_per_s": statistics.median(jige_rates),
        "peer_tokens_per_s": statistics.median(peer_rates),
        "ratio": statistics.median(ratios), "ratio_low": ratios[0], "ratio_high": ratios[-1],
        "rounds": len(ratios),
    }
    if args.json:
        print(json.dumps(record), flush=True)
        return
    print(f"{title}: jige {record['jige_tokens_per_s']:.1f} tokens/s, "
          f"peer {record['peer_tokens_per_s']:.1f} tokens/s, "
          f"ratio {record['ratio']:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}, "
          f"{len(ratios)} rounds)", flush=True)


def show_head(args, version, peer):
    if not args.json:
        print(f"{version['cpu']['model']}, {args.threads} threads, {version['cpu']['isa']} kernels; "
              f"jige {version['version']} ({version['build']['type']}) and {peer}", flush=True)
