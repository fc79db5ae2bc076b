"""What the comparisons share: running Jige and a peer, in turns or one after the other, and
comparing."""
import http.client
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SKIP = 77  # exit code of a peer that is not there, and of a comparison without one
QUARTILES_FROM = 8  # rounds


def add_process_flags(parser, rounds=3):
    """Flags of every comparison. No rounds: a default that the comparison settles later."""
    parser.add_argument("--jige", default=None,
                        help="the binary; by default build/release/jige, else build/bench/jige")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=rounds, help="each runs Jige and the peer")
    parser.add_argument("--json", action="store_true", help="one JSON line a comparison")


def add_run_flags(parser, sizes, rounds=3):
    """Flags of the comparisons of models."""
    add_process_flags(parser, rounds)
    parser.add_argument("--size", choices=sizes, action="append",
                        help="shapes to compare; several times for several")


def add_common_flags(parser, rounds=3):
    """Flags of the comparisons with PyTorch."""
    add_run_flags(parser, ["15m", "110m"], rounds)
    parser.add_argument("--config", action="append",
                        help="the config.json of another model to compare, such as one in "
                             "bench/configs; several times for several")
    parser.add_argument("--python", default="python3",
                        help="a Python that has torch and transformers")
    parser.add_argument("--dtype", choices=["auto", "f32", "bf16"], default="auto",
                        help="auto: bf16 on GPUs and where the processor has instructions for it, "
                             "else f32")


def add_device_flags(parser, default="cpu"):
    """Of the comparisons that a GPU can run."""
    parser.add_argument("--device", choices=["cpu", "cuda"], default=default,
                        help="where both compute; cuda: the first GPU of CUDA_VISIBLE_DEVICES")


def chosen_dtype(args, auto_dtype):
    if args.dtype != "auto":
        return args.dtype
    return "bf16" if args.device == "cuda" else auto_dtype


def shapes(args):
    """What is compared: the name of each model, and the flags of both sides that make it."""
    configs = [(os.path.basename(path).removesuffix(".json"), ["--config", path])
               for path in args.config or []]
    if configs and not args.size:
        return configs
    return [(size, ["--size", size]) for size in args.size or ["15m", "110m"]] + configs


class OtherPrograms:
    """The share of the machine's processors that programs took which this one did not start and wait
    for, from now on."""

    def __init__(self):
        self.began, self.before = time.monotonic(), self.seconds()

    @staticmethod
    def seconds():
        with open("/proc/stat") as stat:
            user, nice, system, _, _, irq, softirq = (int(x) for x in stat.readline().split()[1:8])
        ours = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return ((user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK") -
                sum(one.ru_utime + one.ru_stime for one in ours))

    def share(self):
        seconds = (time.monotonic() - self.began) * os.cpu_count()
        return max(0.0, self.seconds() - self.before) / seconds


def quietest(call, tries, quiet_share):
    """What `call` gives, again until other programs took no more than that share of the machine, or
    as often as `tries`; then that of the quietest try. And the share."""
    made = []
    while len(made) < tries and (not made or made[-1][0] > quiet_share):
        others = OtherPrograms()
        result = call()
        made.append((others.share(), result))
    share, result = min(made, key=lambda one: one[0])
    return result, share


class Listener:
    """A `jige serve` or `jige route` on a free port."""

    def __init__(self, command, until):
        self.process = subprocess.Popen(command + ["--port", "0", "--json", "--quiet"],
                                        stdout=subprocess.PIPE, text=True)
        self.port = None
        for line in self.process.stdout:
            event = json.loads(line)
            self.port = event.get("port", self.port)
            if event["event"] == until:
                return
        sys.exit(f"error: {' '.join(command)} ended before it was ready")

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("GET", path)
        return connection.getresponse().read().decode()

    def stop(self):
        self.process.terminate()
        self.process.wait()


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


def jige_records(jige, subject, arguments, unit="tokens/s"):
    """What `jige bench` measured in a unit, by name: medians (value), spread and shares."""
    command = [jige, "bench", subject, "--json"] + arguments
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"error: {' '.join(command)} failed:\n{result.stderr or result.stdout}")
    records = [json.loads(line) for line in result.stdout.splitlines()]
    return {r["name"]: r for r in records if r.get("unit") == unit}


def run_jige_bench(jige, subject, arguments):
    """Tokens per second by name, as `jige bench` measured them (medians)."""
    return {name: record["value"] for name, record in
            jige_records(jige, subject, arguments).items()}


def run_peer(python, script, arguments):
    """The last line of the peer's JSON, or None where its libraries are missing."""
    lines = run_peer_lines(python, script, arguments)
    return lines and lines[-1]


def run_peer_lines(python, script, arguments):
    """The peer's lines of JSON, or None where its libraries are missing."""
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
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]


class Steps:
    """A program that runs a step for every line it is sent and answers with JSON lines."""

    def __init__(self, command):
        self.command = command
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)

    def read(self):
        """The next record, or the end of both programs."""
        line = self.process.stdout.readline()
        if line:
            return json.loads(line)
        code = self.process.wait()
        sys.exit(SKIP if code == SKIP else f"error: {' '.join(self.command)} ended with {code}")

    def run(self):
        """Seconds of one step."""
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # read() says why
        while True:
            record = self.read()
            if record.get("name") == "step":
                return record["value"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def quartiles(values):
    return statistics.quantiles(values, n=4, method="inclusive")


def show(args, version, title, jige_values, peer_values, peer, unit="tokens/s", ours=None,
         theirs=None):
    """One comparison: medians, and the ratio of each round with its spread.

    ours, theirs: of the last round, its slowest and fastest run, and the share of the machine.
    """
    ratios = sorted(j / p for j, p in zip(jige_values, peer_values))
    key = unit.replace("/", "_per_")
    jige_median, peer_median = statistics.median(jige_values), statistics.median(peer_values)
    record = {
        "comparison": title, "threads": args.threads, "cpu": version["cpu"]["model"],
        "isa": version["cpu"]["isa"], "jige": version["version"], "peer": peer,
        f"jige_{key}": jige_median, f"peer_{key}": peer_median,
        "ratio": statistics.median(ratios), "ratio_low": ratios[0], "ratio_high": ratios[-1],
        "rounds": len(ratios),
    }
    spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
    if len(ratios) >= QUARTILES_FROM:
        record["ratio_quartile_low"], _, record["ratio_quartile_high"] = quartiles(ratios)
        spread = (f"quartiles {record['ratio_quartile_low']:.2f} and "
                  f"{record['ratio_quartile_high']:.2f}, all {spread}")
    notes = run_notes(record, ours, theirs)
    if args.json:
        print(json.dumps(record), flush=True)
        return
    digits = 1 if unit in ("tokens/s", "GFLOP/s") else 3
    print(f"{title}: jige {jige_median:.{digits}f} {unit}, peer {peer_median:.{digits}f} {unit}, "
          f"ratio {record['ratio']:.2f} ({spread}, {len(ratios)} "
          f"{'round' if len(ratios) == 1 else 'rounds'}){notes}", flush=True)


def run_notes(record, ours, theirs):
    """What is known of single runs goes into the record; for people as text."""
    text = ""
    for side, found in [("jige", ours), ("peer", theirs)]:
        if not found:
            continue
        record[side + "_slowest"], record[side + "_fastest"] = found["slowest"], found["fastest"]
        text += f"; runs of {side} {found['slowest']:.1f} to {found['fastest']:.1f}"
    if ours and "share" in ours:
        record["jige_share"], record["jige_share_of"] = ours["share"], ours["share_of"]
        text += f"; jige at {100 * ours['share']:.0f} % {ours['share_of']}"
    return text


def show_head(args, version, peer):
    tell(args, f"{version['cpu']['model']}, {args.threads} threads, {version['cpu']['isa']} "
         f"kernels; jige {version['version']} ({version['build']['type']}) and {peer}")


def tell(args, text):
    """A line for people; JSON goes without."""
    if not args.json:
        print(text, flush=True)
