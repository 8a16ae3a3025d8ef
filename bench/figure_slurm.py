#!/usr/bin/env python3
"""Slurm jobs: how soon after the decision the verb is done, and what it costs while nothing is to be done."""
import os
import pathlib
import statistics
import sys
import tempfile
import time

from figures import LULL, finish, report

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/slurm"))
import events  # noqa: E402
from cluster import Cluster, why_not  # noqa: E402
from conftest import Nodes  # noqa: E402
from waiting import wait_until  # noqa: E402

RULE = "util < 1 for 1s"
ALL = 240  # seconds, for 64 nodes on few processors
# Of the end of a job, by whom ever it is ended.
OF_ANY_JOB = ("MESSAGE_EPILOG_COMPLETE", "REQUEST_COMPLETE_BATCH_SCRIPT", "MESSAGE_NODE_REGISTRATION_STATUS", "REQUEST_NODE_INFO",
              "REQUEST_COMPLETE_PROLOG", "REQUEST_PING")
acts = false_acts = put_off = 0


def stop(nodes):
    for watcher in nodes.watchers.values():
        watcher.terminate()
        watcher.wait()


def calls(cluster):
    """The calls that slurmctld has had, by type, without those of sdiag itself: how many, and their microseconds."""
    found = {}
    for line in cluster.ask("sdiag").partition("Remote Procedure Call statistics by message type")[2].splitlines()[1:]:
        if not line.startswith("\t"):
            break
        words = line.replace(":", " ").split()
        found[words[0]] = (int(words[words.index("count") + 1]), int(words[words.index("total_time") + 1]))
    found.pop("REQUEST_STATS_INFO", None)
    return found


def calls_since(cluster, before):
    """What came in addition: {type: (count, microseconds)}"""
    now = calls(cluster)
    return {name: tuple(a - b for a, b in zip(now[name], before.get(name, (0, 0)))) for name in now if now[name] != before.get(name)}


def says_yes(nodes, node, job):
    return nodes.gpus[node].run(LULL, "slurm", "ask", job, env={"SLURMD_NODENAME": node}).returncode == 0


def by_hand(cluster, job, count):
    """Seconds of the same commands of Slurm, one after the other: what no tool can be below on this machine now."""
    begin = time.monotonic()
    if count > 1:
        cluster.run("srun", f"--jobid={job}", "--overlap", "--mem=0", "--gres=none", "--ntasks-per-node=1", f"--nodes={count}",
                    f"--ntasks={count}", "/bin/true")
    for fields in ("JobID,State,RestartCnt", "JobID,Comment"):
        cluster.run("squeue", "--noheader", f"--jobs={job}", f"--Format={fields}")
    cluster.run("scontrol", "show", "job", "--details", str(job))
    for _ in range(2):  # AdminComment; scancel takes as long
        cluster.run("scontrol", "update", f"jobid={job}", "AdminComment=x")
    return time.monotonic() - begin


def decision_to_done(cluster, nodes, count, turns, wanted, every):
    """A job on so many nodes: all idle but one, which must keep it; then all."""
    global acts, false_acts, put_off
    took, bare, spent, dropped = [], [], [], 0
    for _ in range(turns):
        for node in cluster.nodes:
            nodes.gpus[node].set("all", util=90)
        job = cluster.submit(nodes=count)
        wait_until(lambda: len(cluster.runs_on(job)) == count, limit=ALL, what="the job")
        leader, *rest = cluster.runs_on(job)
        bare.append(by_hand(cluster, job, count))
        with tempfile.TemporaryDirectory() as folder:
            logs = pathlib.Path(folder)
            nodes.watch(f"{RULE}: slurm=cancel", logs=logs, every=every, nodes=[leader, *rest])
            if rest:
                nodes.idle(leader, *rest[1:])  # of several that say no, the first is named
                wait_until(lambda: events.says_no(logs, leader, rest[0]), limit=ALL, what="a no", every=0.05)
            false_acts += len(events.acts(logs))
            stop(nodes)
        with tempfile.TemporaryDirectory() as folder:  # fires when all are idle, so that nothing is put off
            logs = pathlib.Path(folder)
            nodes.idle()
            before = calls(cluster)
            for some in (rest, [leader]):
                if some:
                    nodes.watch(f"{RULE}: slurm=cancel", logs=logs, every=every, nodes=some)
                    wait_until(lambda: some == [leader] or says_yes(nodes, some[-1], job), limit=ALL, what="a yes")
            wait_until(lambda: events.acts(logs, leader), limit=ALL, what="the act", every=0.05)
            spent.append({name: many for name, many in calls_since(cluster, before).items() if name not in OF_ANY_JOB})
            ((_, fired, done),) = events.acts(logs, leader)
            took.append(done - fired)
            if any(one["event"] == "put-off" for one in events.of(logs, leader)):
                took.pop()  # a node had not had its second yet: that is the time of the next try, not of the act
                dropped += 1
            acts += 1
            stop(nodes)
        cluster.cancel_all()
    put_off += dropped
    what = f"decision to verb done, {count} node{'s' if count > 1 else ''}"
    if len(took) * 2 <= turns:
        report(what, f"at the first try in {len(took)} of {turns} turns", "in more than half of them", False)
        return
    middle, floor = statistics.median(took), statistics.median(bare)
    report(what, f"{middle * 1e3:.0f} ms", f"at most {wanted * 1e3:.0f} ms", middle <= wanted,
           f"({min(took) * 1e3:.0f} to {max(took) * 1e3:.0f} ms; {dropped} of {turns} turns put off and not counted; "
           f"load {os.getloadavg()[0]:.0f})")
    # What a slow machine is to blame for, and what not.
    report("    and by Slurm's own commands, by hand", f"{floor * 1e3:.0f} ms", "at least half of that", middle <= 2 * floor)
    one = min(spent, key=lambda one: sum(count for count, _ in one.values()))
    number, micros = (sum(many[i] for many in one.values()) for i in (0, 1))
    wanted_calls = 10 if count == 1 else 16  # many nodes report the end of a step together
    report("    and calls to slurmctld for that", f"{number}, {micros / 1e3:.1f} ms of its time", f"at most {wanted_calls}",
           number <= wanted_calls, f"({', '.join(f'{count} {name}' for name, (count, _) in sorted(one.items()))})")


def processes(pid):
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(one for child in children for one in processes(int(child)))]


def cpu(pids):
    """Seconds on a processor, of all threads."""
    return sum(int(path.read_text().split()[0]) for pid in pids for path in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def memory_mib(pids, kind):
    total = 0
    for pid in pids:
        for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith(kind):
                total += int(line.split()[1])
    return total / 1024


def at_rest(seconds):
    """A node of 8 GPUs with 8 jobs that work."""
    cluster = Cluster(LULL, 1, 8)
    nodes = Nodes(cluster, LULL)
    try:
        (node,) = cluster.nodes
        jobs = [cluster.submit() for _ in range(8)]
        wait_until(lambda: all((cluster.runs / node / str(job)).exists() for job in jobs), what="8 jobs")
        nodes.watch("util < 1 for 2h: slurm=requeue", every="5s")
        watcher = nodes.watchers[node].pid
        time.sleep(6)
        pids = processes(watcher)
        before, used, begin = calls(cluster), cpu(pids), time.monotonic()
        time.sleep(seconds)  # what is measured is a rate
        used, lasted = cpu(pids) - used, time.monotonic() - begin
        more = calls_since(cluster, before)
        report(f"calls to slurmctld in {lasted:.0f} s in which nothing fires", str(len(more)), "0", not more, str(more or ""))
        share = 100 * used / lasted
        report("watcher and sensor, 8 GPUs and 8 jobs, every 5 s: of a core", f"{share:.3f} %", "at most 0.2 %", share <= 0.2)
        size = memory_mib(pids[:1], "Rss:")
        report("    and memory of the watcher", f"{size:.1f} MiB", "at most 10 MiB", size <= 10,
               f"(with the sensor, pages that they share counted once: {memory_mib(pids, 'Pss:'):.1f} MiB)")
    finally:
        nodes.close()
        cluster.close()


def main():
    if why := why_not():
        print(f"skip    Slurm: {why}")
        return finish()
    at_rest(float(os.environ.get("LULL_TEST_SECONDS", "60")))
    for counts, turns, every in (((1, 2), 9, "250ms"), ((int(os.environ.get("LULL_TEST_NODES", "64")),), 3, "1s")):
        cluster = Cluster(LULL, max(counts))
        nodes = Nodes(cluster, LULL)
        try:
            for count in counts:
                wanted = 0.05 if count == 1 else 0.3 if count == 2 else 3
                decision_to_done(cluster, nodes, count, turns, wanted, every)
        finally:
            nodes.close()
            cluster.close()
    report("acts while a node of the job works", str(false_acts), "0", false_acts == 0, f"({acts} acts after that, {put_off} put off at first)")
    finish()


if __name__ == "__main__":
    main()
