"""Who runs a ring between the hosts of a lab, and how long it takes."""
import json
import os
import statistics
import subprocess
import sys
import tempfile

import compare_common as common

AGENT_PORT = 7431


class RingEdges:
    """All edges of a ring at once, by the agents; scaled to what an all-reduce sends on each."""
    what = "ring edges at once, as an all-reduce loads them"

    def __init__(self, lab, jige, hosts, mib):
        self.lab, self.jige, self.hosts, self.mib = lab, jige, hosts, mib

    def rate(self, order):
        """GB/s of the slowest edge."""
        edges = ",".join(f"h{a}>h{b}:send" for a, b in zip(order, order[1:] + order[:1]))
        done = self.lab.run(0, [self.jige, "profile", "links", "set", "--hosts", self.hosts, "--set",
                                edges, "--json"], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"error: jige profile links: {done.stdout}{done.stderr}")
        return json.loads(done.stdout.splitlines()[-1])["rate"]

    def seconds(self, order):
        n = len(order)
        return 2 * (n - 1) / n * self.mib * (1 << 20) / (self.rate(order) * 1e9)


def all_reduce_or(edges, lab, jige, mib):
    return edges


def peers(lab, args, show):
    return []
