"""Hosts as network namespaces on this machine, joined by links of a given rate.

    with Lab(hosts=5, leaf_of=[0, 1, 0, 1, 0], link_mbit=200, trunk_mbit=200) as lab:
        lab.run(0, ["ping", "-c1", lab.address(1)])

Every host hangs on a leaf bridge by a veth pair; leaf bridges are joined by trunks, a chain where there
are more than two. Links are shaped at both ends by tbf, so each direction has its rate; None leaves
them unshaped. Pairs of hosts can be slower than their links (`slow_pairs`), as where a path between them is
policed. Bridges and trunks stay in a namespace of their own: nothing is added to the
machine's network, and deleting the namespaces takes all of it down, also on Ctrl-C or SIGTERM. What a
killed run left behind goes when the next one starts. Needs root.
"""
import os
import shutil
import signal
import subprocess
import sys
import time

PREFIX = "jigelab"


def missing():
    """Why no lab can be built here, or None."""
    if os.geteuid() != 0:
        return "needs root to make network namespaces"
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None and not os.path.exists(f"/usr/sbin/{tool}"):
            return f"needs `{tool}` (Debian package iproute2)"
    probe = f"{PREFIX}.{os.getpid()}.probe"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True)
    if made.returncode != 0:
        return "may not make network namespaces: " + made.stderr.strip()
    shaped = subprocess.run(
        f"ip -n {probe} link add name probe0 type veth peer name probe1 && ip -n {probe} link add name probe2 type bridge && "
        f"tc -n {probe} qdisc add dev probe0 root tbf rate 10mbit burst 32k latency 50ms",
        shell=True, capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", probe], capture_output=True)
    if shaped.returncode != 0:
        return "may not shape links: " + shaped.stderr.strip()
    return None


def _remove(namespaces):
    for name in namespaces:
        subprocess.run(["ip", "netns", "del", name], capture_output=True)


def _leftovers():
    names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout.split("\n")
    for name in (line.split(" ")[0] for line in names if line.startswith(PREFIX + ".")):
        if not os.path.exists(f"/proc/{name.split('.')[1]}"):
            yield name


class Lab:
    def __init__(self, hosts, leaf_of, link_mbit, trunk_mbit, queue_ms=50, slow_pairs=None):
        """slow_pairs: {(a, b): Mbit/s}, each for both directions."""
        self.hosts = hosts
        self.leaf_of = leaf_of
        self.link_mbit = link_mbit
        self.trunk_mbit = trunk_mbit
        self.queue_ms = queue_ms
        self.slow_pairs = slow_pairs or {}
        self.processes = []
        self._net = f"{PREFIX}.{os.getpid()}.net"

    def namespace(self, host):
        return f"{PREFIX}.{os.getpid()}.h{host}"

    def address(self, host):
        return f"10.77.0.{host + 1}"

    def __enter__(self):
        _remove(_leftovers())
        self._old_term = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        # Also where the shell had it ignored, as for commands in the background.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            self._build()
        except BaseException:
            self._down()
            raise
        return self

    def __exit__(self, *_):
        self._down()

    def _down(self):
        # A second Ctrl-C must not leave half of it standing.
        old = signal.signal(signal.SIGINT, signal.SIG_IGN)
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes.clear()
        _remove([self.namespace(h) for h in range(self.hosts)] + [self._net])
        signal.signal(signal.SIGTERM, self._old_term)
        signal.signal(signal.SIGINT, old)

    def _do(self, command):
        done = subprocess.run(command.split(), capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{command}: {done.stderr.strip()}")

    def _shape(self, namespace, device, mbit):
        self._do(f"tc -n {namespace} qdisc del dev {device} root") if self._shaped(
            namespace, device) else None
        if mbit is not None:
            burst = max(32, int(mbit * 0.25))  # KiB; 2 ms, and never below a large segment
            self._do(f"tc -n {namespace} qdisc add dev {device} root tbf rate {mbit}mbit "
                     f"burst {burst}k latency {self.queue_ms}ms")

    def _shape_host(self, host, mbit):
        """The way out of a host: one rate, and below it a class for each pair that is slow."""
        slow = {b if a == host else a: rate for (a, b), rate in self.slow_pairs.items()
                if host in (a, b)}
        name = self.namespace(host)
        if not slow:
            self._shape(name, "eth0", mbit)
            return
        if self._shaped(name, "eth0"):
            self._do(f"tc -n {name} qdisc del dev eth0 root")
        if mbit is None:
            return
        self._do(f"tc -n {name} qdisc add dev eth0 root handle 1: htb default 10")
        self._do(f"tc -n {name} class add dev eth0 parent 1: classid 1:1 htb rate {mbit}mbit ceil {mbit}mbit")
        for number, rate, peer in [(10, mbit, None)] + [(20 + p, r, p) for p, r in slow.items()]:
            self._do(f"tc -n {name} class add dev eth0 parent 1:1 classid 1:{number} "
                     f"htb rate {rate}mbit ceil {rate}mbit")
            self._do(f"tc -n {name} qdisc add dev eth0 parent 1:{number} "
                     f"bfifo limit {int(rate * 125 * self.queue_ms)}")
            if peer is not None:
                self._do(f"tc -n {name} filter add dev eth0 parent 1: protocol ip u32 "
                         f"match ip dst {self.address(peer)} flowid 1:{number}")

    @staticmethod
    def _shaped(namespace, device):
        shown = subprocess.run(["tc", "-n", namespace, "qdisc", "show", "dev", device],
                               capture_output=True, text=True).stdout
        return "tbf" in shown or "htb" in shown

    def _build(self):
        self._do(f"ip netns add {self._net}")
        for leaf in range(max(self.leaf_of) + 1):
            self._do(f"ip -n {self._net} link add leaf{leaf} type bridge forward_delay 0 stp_state 0")
            self._do(f"ip -n {self._net} link set leaf{leaf} up")
        for trunk in range(max(self.leaf_of)):
            self._do(f"ip -n {self._net} link add t{trunk}up type veth peer name t{trunk}down")
            for end, leaf in (("up", trunk), ("down", trunk + 1)):
                self._do(f"ip -n {self._net} link set t{trunk}{end} master leaf{leaf} up")
        for host in range(self.hosts):
            name = self.namespace(host)
            self._do(f"ip netns add {name}")
            self._do(f"ip -n {name} link add eth0 type veth peer name v{host} netns {self._net}")
            self._do(f"ip -n {name} addr add {self.address(host)}/24 dev eth0")
            self._do(f"ip -n {name} link set lo up")
            self._do(f"ip -n {name} link set eth0 up")
            self._do(f"ip -n {self._net} link set v{host} master leaf{self.leaf_of[host]} up")
        self.set_rates(self.link_mbit, self.trunk_mbit)

    def set_rates(self, link_mbit, trunk_mbit):
        """Shapes all links anew; None takes the shaping away."""
        self.link_mbit, self.trunk_mbit = link_mbit, trunk_mbit
        for host in range(self.hosts):
            self._shape_host(host, link_mbit)
            self._shape(self._net, f"v{host}", link_mbit)
        for trunk in range(max(self.leaf_of)):
            for end in ("up", "down"):
                self._shape(self._net, f"t{trunk}{end}", trunk_mbit)

    def command(self, host, words):
        return ["ip", "netns", "exec", self.namespace(host)] + [str(w) for w in words]

    def run(self, host, words, **options):
        return subprocess.run(self.command(host, words), **options)

    def start(self, host, words, **options):
        """A process that ends with the lab."""
        process = subprocess.Popen(self.command(host, words), **options)
        self.processes.append(process)
        return process

    def end(self, process):
        process.terminate()
        process.wait()
        self.processes.remove(process)

    def wait_for_port(self, host, port, seconds=10):
        """Waits until something listens on the host's port."""
        wanted = f":{port:04X}"
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            table = self.run(host, ["cat", "/proc/net/tcp"], capture_output=True, text=True).stdout
            if any(line.split()[1].endswith(wanted) and line.split()[3] == "0A"
                   for line in table.splitlines()[1:]):
                return
            time.sleep(0.05)
        raise RuntimeError(f"nothing listens on port {port} of host {host}")
