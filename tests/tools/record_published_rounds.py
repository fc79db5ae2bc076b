"""Records what the published ICPADS'23 scheduler makes of traces, as an oracle for published_rounds_test.cc.

    python tests/tools/record_published_rounds.py CHECKOUT tests/fixtures/cluster

CHECKOUT is a copy of github.com/gajagajago/deepshare (recorded with commit a704439). Its environment runs as it is,
with torch; of pandas and gym it needs only a table reader and two base classes, which stand in below. Nothing of it is
written but figures. Three files of our own making (drawn from a seed) are written beside them, so that the comparison
needs no copy of its tables:

    rates.csv, shares.csv, trace.json   drawn
    drawn_outcomes.csv                  policy,job,seconds with GPUs,end in seconds: of each job of trace.json
    published_outcomes.csv              trace,policy,jobs,mean seconds with GPUs,mean JCT in seconds,utilisation,rounds,
                                        checksum (FNV-1a, 64 bits, of "job,seconds,end;" for all jobs): of its own traces

`las` and `srtf` are its own loop. It has no FIFO that runs; `fifo` is a loop of ours over its functions that starts in
the order of the queue what fits and stops nobody, on the most nodes first or (`fifo-narrow`) on two.
"""

import csv
import json
import os
import random
import sys
import types

MODELS = ["MobileNetV3", "GraphSage", "FSDP", "Transformer-XL", "DLRM", "MoE"]
SHAPES = [(2, 2), (4, 2), (4, 4), (8, 2), (8, 4), (8, 8)]
POLICIES = ["las", "srtf", "fifo", "fifo-narrow"]


class Frame:
    """As much of a pandas.DataFrame as `.at[row, column]`."""

    def __init__(self, path):
        with open(path, encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file) if row]
        self.at = {(row[0], column): float(value) for row in rows[1:] for column, value in zip(rows[0][1:], row[1:])}


def stand_in():
    def module(name, **members):
        made = types.ModuleType(name)
        for key, value in members.items():
            setattr(made, key, value)
        sys.modules[name] = made
        return made

    class Space:
        def __init__(self, *args, **keywords):
            pass

    spaces = module("gym.spaces", Box=Space, Discrete=Space)
    module("gym", Env=object, spaces=spaces)
    module("pandas", read_csv=lambda path, **keywords: Frame(path))
    module("utils.job_launcher", slurm_launch=None, slurm_preempt=None, slurm_kill=None)


def fifo_round(environment, actions, widest):
    index = 0
    while index < len(environment.job_queue):
        job = environment.job_queue.at(index)
        free = [node.free_gpus for node in environment.nodes]
        if widest:
            placement, fits = actions.find_las_srtf_placement(job, free)
        else:
            placement, fits = [], False
            for nodes, gpus in actions.obs_helper.placement_rule(job.total_gpu_demand):
                room = [node for node, count in enumerate(free) if count >= gpus]
                if nodes > 1 and len(room) >= nodes:
                    placement, fits = room[:nodes], True
                    break
        if not fits:
            index += 1
            continue
        environment.job_queue.remove(job)
        job.per_node_gpu_demand = job.total_gpu_demand // len(placement)
        job.num_nodes_to_schedule = len(placement)
        environment.schedule(job, placement)
        environment.scheduled_job_shared_thp_ratio[job.id] = 1.0
    environment.update_util()
    environment.update_shared_thp()
    for job in environment.scheduled_job_list:
        share = environment.scheduled_job_shared_thp_ratio[job.id]
        environment.update_progress(job, job.isolated_throughput * share * environment.round_dur)
    environment.nr_round += 1


def run(checkout, policy, trace, rates, shares):
    from scheduler import cluster_env
    from scheduler.rl_training import action_helper
    environment = cluster_env.ClusterEnv(trace=trace, isolated_thp_path=rates, shared_thp_path=shares)
    environment.train, environment.simulate, environment.scheduler = False, True, policy
    environment.queue_jobs_from_trace(trace)
    jobs = list(environment.job_queue.q)
    ends = {}
    update = environment.update_progress

    def update_and_note(job, samples):
        update(job, samples)
        if environment.scheduled_job_list.find_by_id(job.id)[0] < 0:
            ends[job.id] = (environment.nr_round + 1) * environment.round_dur

    environment.update_progress = update_and_note
    environment.show_scheduling_status = lambda: None  # writes text that nobody reads
    while len(environment.job_queue) > 0 or len(environment.scheduled_job_list) > 0:
        if policy.startswith("fifo"):
            fifo_round(environment, action_helper, policy == "fifo")
        else:
            environment.round()
    outcomes = [(job.id, job.trained_time.sum, ends[job.id]) for job in jobs]
    return outcomes, environment.jct.avg, environment.util.avg, environment.nr_round


def checksum(outcomes):
    value = 0xcbf29ce484222325
    for byte in "".join("%d,%d,%d;" % outcome for outcome in outcomes).encode():
        value = (value ^ byte) * 0x100000001b3 % 2**64
    return "%016x" % value


def draw_inputs(folder):
    draw = random.Random(1)
    types_ = ["%s,%d,%d" % (model, gpus, nodes) for model in MODELS for gpus, nodes in SHAPES]
    scales = {model: draw.choice([3, 40, 900, 20000]) for model in MODELS}
    rates = {name: round(scales[name.split(",")[0]] * draw.uniform(0.5, 2), 2) for name in types_}
    with open(folder + "/rates.csv", "w") as file:
        file.write(",isol_thp\n" + "".join('"%s",%s\n' % (name, rate) for name, rate in rates.items()))
    with open(folder + "/shares.csv", "w") as file:
        file.write("," + ",".join('"%s"' % name for name in types_) + "\n")
        for name in types_:
            file.write('"%s",%s\n' % (name, ",".join("%.3f" % draw.choice([1, 0.2, draw.uniform(0.3, 1)])
                                                     for _ in types_)))
    trace = {}
    for job in range(60):
        model, gpus = draw.choice(MODELS), draw.choice([2, 4, 8])
        rate = rates["%s,%d,2" % (model, gpus)]
        trace[str(job)] = {"model": model, "gpu_demand": gpus,
                           "total_samples_to_train": round(rate * draw.uniform(100, 6000), 3)}
    with open(folder + "/trace.json", "w") as file:
        file.write("{\n" + ",\n".join('"%s": %s' % (job, json.dumps(trace[job])) for job in trace) + "\n}\n")


def main(checkout, folder):
    os.environ["DEEPSHARE_PATH"] = checkout
    sys.path.insert(0, checkout)
    stand_in()
    draw_inputs(folder)
    with open(folder + "/drawn_outcomes.csv", "w") as file:
        file.write("policy,job,held_s,end_s\n")
        for policy in POLICIES:
            outcomes = run(checkout, policy, folder + "/trace.json", folder + "/rates.csv", folder + "/shares.csv")[0]
            for job, held, end in outcomes:
                file.write("%s,%d,%d,%d\n" % (policy, job, held, end))
    names = ["simulate/trace0", "real/trace0"]
    names += ["train/jobset%d/episode0" % jobset for jobset in range(3)]
    with open(folder + "/published_outcomes.csv", "w") as file:
        file.write("trace,policy,jobs,held_mean_s,jct_mean_s,utilisation,rounds,checksum\n")
        for name in names:
            for policy in POLICIES:
                outcomes, held, used, rounds = run(checkout, policy, checkout + "/scheduler/traces/" + name,
                                                   checkout + "/scheduler/jobs/isolated_thp.csv",
                                                   checkout + "/scheduler/jobs/shared_thp_ratio.csv")
                jct = sum(end for _, _, end in outcomes) / len(outcomes)
                file.write("%s,%s,%d,%.6f,%.6f,%.6f,%d,%s\n" % (name, policy, len(outcomes), held, jct, used, rounds,
                                                               checksum(outcomes)))
                file.flush()


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]), sys.argv[2])
