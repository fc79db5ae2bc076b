"""Who runs a ring between the hosts of a lab, and how long it takes."""
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

import compare_common as common

AGENT_PORT = 7431


class RingEdges:
    """All edges of a ring at once, by the agents."""

    def __init__(self, lab, jige, hosts, mib):
        self.lab, self.jige, self.hosts, self.mib = lab, jige, hosts, mib

    def rate(self, order, more=()):
        """GB/s of the slowest edge. `more`: flags."""
        edges = ",".join(f"h{a}>h{b}:send" for a, b in zip(order, order[1:] + order[:1]))
        done = self.lab.run(0, [self.jige, "profile", "links", "set", "--hosts", self.hosts, "--set",
                                edges, "--json", *more], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"error: jige profile links: {done.stdout}{done.stderr}")
        return json.loads(done.stdout.splitlines()[-1])["rate"]


class AllReduce(RingEdges):
    """The all-reduce of Jige between the agents, each a process in the namespace of its host."""
    what = "all-reduces between processes"

    def seconds(self, order):
        names = ",".join(f"h{host}" for host in order)
        done = self.lab.run(0, [self.jige, "profile", "links", "all-reduce", "--hosts", self.hosts,
                                "--devices", names, "--transfer-bytes", f"{self.mib}MiB", "--json"],
                            capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"error: jige profile links all-reduce: {done.stdout}{done.stderr}")
        return statistics.median(json.loads(done.stdout.splitlines()[-1])["seconds"])


def open_mpi_words(lab, folder):
    """An mpirun for the namespace of host 0; the other hosts are reached by a stand-in for ssh."""
    agent = os.path.join(folder, "into_namespace")
    with open(agent, "w") as file:
        file.write("#!/bin/sh\nhost=$1; shift; number=$((${host##*.} - 1))\n"
                   f"exec ip netns exec {lab.namespace('')}$number unshare --uts "
                   "sh -c \"hostname host$number; $*\"\n")
    os.chmod(agent, 0o755)
    return ["mpirun", "--allow-run-as-root", "--mca", "plm_rsh_agent", agent, "--mca", "pml", "ob1",
            "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "eth0", "--mca",
            "oob_tcp_if_include", "eth0"]


def _open_mpi(lab, folder, mib, repeats, algorithm, order):
    program = os.path.join(folder, "mpi_peer")
    if not os.path.exists(program):
        subprocess.run(["mpicc", "-O2", os.path.join(common.HERE, "peers", "collective_mpi_peer.c"),
                        "-o", program], check=True)
    words = ["timeout", "120"] + open_mpi_words(lab, folder)
    if algorithm:
        words += ["--mca", "coll_tuned_use_dynamic_rules", "1",
                  "--mca", "coll_tuned_allreduce_algorithm", algorithm]
    words += ["-host", ",".join(map(lab.address, order)), "-np", lab.hosts, program, 1,
              repeats, mib << 20]
    return lab.run(0, words, capture_output=True, text=True)


def _seconds(record):
    if "rows" in record:  # the mean of all
        return [record["rows"][0]["time_us"] * 1e-6]
    return record["seconds"]


def _gloo(lab, python, mib, repeats, order):
    words = [python, os.path.join(common.HERE, "peers", "allreduce_gloo_peer.py"), "--world", lab.hosts,
             "--rendezvous", f"{lab.address(order[0])}:29500", "--interface", "eth0", "--mib", mib,
             "--repeats", repeats, "--rank"]
    ranks = [lab.start(host, words + [rank], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                       text=True) for rank, host in enumerate(order)]
    first = None
    for rank in ranks:
        out, err = rank.communicate(timeout=180)
        lab.processes.remove(rank)
        done = subprocess.CompletedProcess(rank.args, rank.returncode, out, err)
        if first is None or done.returncode != 0:
            first = done
    return first


def peers(lab, args, show, orders):
    """(name, order, seconds) of every peer that is installed, with its ranks on the hosts in each of
    the named orders, of which host 0 is the first."""
    missing = set()
    with tempfile.TemporaryDirectory() as folder:
        runs = [("Gloo", lambda order: _gloo(lab, args.python, args.mib, args.final_rounds, order))]
        if shutil.which("mpirun") and shutil.which("mpicc"):
            for name, algorithm in (("Open MPI, ring", 4), ("Open MPI", None)):
                runs.append((name, lambda order, algorithm=algorithm: _open_mpi(
                    lab, folder, args.mib, args.final_rounds, algorithm, order)))
        else:
            show("skipped: Open MPI (packages openmpi-bin, libopenmpi-dev)")
        for title, order in orders.items():
            for name, call in runs:
                if name in missing:
                    continue
                done = call(order)
                if done.returncode != 0:
                    show(f"skipped: {name}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
                    missing.add(name)
                    continue
                seconds = _seconds(json.loads(done.stdout.strip().splitlines()[-1]))
                show(f"{name}, {title}: {statistics.median(seconds):.3f} s")
                yield f"{name}, {title}", order, seconds
