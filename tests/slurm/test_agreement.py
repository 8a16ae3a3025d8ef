"""Jobs of a real Slurm are acted on by their first node, once all their nodes say yes, and never else."""
import datetime
import http.server
import json
import re
import shutil
import subprocess
import threading
import time

import pytest

from lull_e2e import wait_until

RULE = "util < 1 for 1s"


def started(cluster, job, nodes=1):
    wait_until(lambda: len(cluster.runs_on(job)) == nodes and cluster.state(job) == "RUNNING", what=f"job {job}")
    return cluster.runs_on(job)


def restarted(cluster, job):
    wait_until(lambda: cluster.field(job, "Restarts") == "1", what=f"job {job} to be requeued")


def test_a_job_on_one_node_is_requeued_when_its_gpus_are_idle(cluster, nodes):
    job = cluster.submit()
    (node,) = started(cluster, job)
    nodes.watch(f"{RULE}: slurm=requeue")
    assert cluster.field(job, "Restarts") == "0"
    gpu, began = gpu_of(cluster, node, job), time.time()
    nodes.idle(node)
    restarted(cluster, job)
    # What its user is told: the rule, which GPUs, since when, and how to keep it.
    (comment,) = re.findall(r"AdminComment=(.*?) *\n", cluster.run("scontrol", "show", "job", job).stdout)
    told = re.fullmatch(rf"lull: {RULE} held for (\d+)s on {node} GPU (\d) since (\S+); `lull keep slurm:{job} 4h` keeps it", comment)
    assert told and int(told[1]) >= 1 and int(told[2]) == gpu, comment
    since = datetime.datetime.fromisoformat(told[3].replace("Z", "+00:00")).timestamp()
    assert began - 1 <= since <= time.time() - 1, (comment, began)  # whole seconds


def test_a_job_is_started_again_soon_after_its_requeue(cluster, nodes):
    job = cluster.submit()
    (node,) = started(cluster, job)
    nodes.watch(f"{RULE}: slurm=requeue", nodes=[node])
    nodes.idle(node)
    restarted(cluster, job)
    nodes.gpus[node].set("all", util=90)
    wait_until(lambda: cluster.state(job) == "RUNNING" and cluster.runs_on(job), limit=60, what="the second run")


def test_a_job_on_two_nodes_needs_both(cluster, nodes):
    job = cluster.submit(nodes=2)
    first, second = started(cluster, job, 2)
    nodes.watch(f"{RULE}: slurm=requeue")
    nodes.idle(first)
    said = nodes.said(first, "not now")
    assert f"{second} says no" in said, said
    assert cluster.state(job) == "RUNNING" and cluster.field(job, "Restarts") == "0"
    nodes.idle(second)
    restarted(cluster, job)


def test_a_job_whose_second_node_is_busy_is_never_acted_on(cluster, nodes):
    job = cluster.submit(nodes=2)
    first, second = started(cluster, job, 2)
    nodes.watch(f"{RULE}: slurm=cancel", options=["-v"])
    nodes.idle(first)
    for _ in range(3):
        said = nodes.said(first, "not now")
        assert f"{second} says no" in said, said
    assert cluster.state(job) == "RUNNING" and cluster.field(job, "Restarts") == "0"


def test_a_dry_run_asks_the_other_node_and_does_nothing(cluster, nodes):
    job = cluster.submit(nodes=2)
    first, second = started(cluster, job, 2)
    nodes.watch(f"{RULE}: slurm=cancel", options=["--dry-run", "-v"])
    nodes.idle(first)
    said = nodes.said(first, f"{second} says no")
    assert "dry run: would" not in said, said
    nodes.idle(second)
    nodes.said(first, "dry run: would cancel")
    shown = cluster.run("scontrol", "show", "job", job).stdout
    assert cluster.state(job) == "RUNNING" and "AdminComment" not in shown, shown


def test_a_job_whose_second_node_is_not_watched_is_not_acted_on(cluster, nodes):
    job = cluster.submit(nodes=2)
    first, second = started(cluster, job, 2)
    nodes.watch(f"{RULE}: slurm=cancel", nodes=[first])
    nodes.idle()
    assert f"{second} says nobody" in nodes.said(first, "not now")
    assert cluster.state(job) == "RUNNING"


def test_the_second_node_does_nothing_by_itself(cluster, nodes):
    job = cluster.submit(nodes=2)
    _, second = started(cluster, job, 2)
    nodes.watch(f"{RULE}: slurm=cancel", nodes=[second])
    nodes.idle()
    wait_until(lambda: ask(cluster, nodes, second, job)["says"] == "yes", what="a yes")
    assert cluster.state(job) == "RUNNING"


def ask(cluster, nodes, node, job, *before):
    done = nodes.gpus[node].run(*before, nodes.cluster.lull, "slurm", "ask", job, "--json", env={"SLURMD_NODENAME": node})
    answer = json.loads(done.stdout)
    assert done.returncode == {"yes": 0, "no": 1, "unknown": 2, "nobody": 3}[answer["says"]]
    return answer


def test_the_owner_and_root_may_ask_and_nobody_else(cluster, nodes):
    job = cluster.submit("--uid=nobody", "--gid=nogroup")
    (node,) = started(cluster, job)
    nodes.watch("util < 1 for 1h: slurm=cancel")
    wait_until(lambda: ask(cluster, nodes, node, job)["yes_in_seconds"] is not None, what="an answer")
    answer = ask(cluster, nodes, node, job, "runuser", "-u", "nobody", "--")
    assert answer["says"] == "no" and answer["yes_in_seconds"] == 3600 and answer["restarts"] == 0
    answer = ask(cluster, nodes, node, job, "runuser", "-u", "daemon", "--")
    assert answer["says"] == "unknown" and "only its owner" in answer["reason"]
    assert ask(cluster, nodes, node, job + 1)["says"] == "nobody"


def test_keep_by_the_owner_puts_it_off_and_a_stranger_is_refused(cluster, nodes):
    job = cluster.submit("--uid=nobody", "--gid=nogroup")
    (node,) = started(cluster, job)
    nodes.watch("util < 1 for 1h: slurm=cancel")
    wait_until(lambda: ask(cluster, nodes, node, job)["yes_in_seconds"] is not None, what="an answer")
    keep = [cluster.lull, "keep", f"slurm:{job}", "4h"]
    done = nodes.gpus[node].run("runuser", "-u", "daemon", "--", *keep)
    assert done.returncode == 1 and "only its owner" in done.stdout
    done = nodes.gpus[node].run("runuser", "-u", "nobody", "--", *keep)
    assert done.returncode == 0 and "kept" in done.stdout
    answer = ask(cluster, nodes, node, job)
    assert answer["says"] == "no" and 14000 < answer["yes_in_seconds"] <= 14400


def test_an_allocation_without_a_process_is_judged_and_left_or_cancelled_as_the_site_says(cluster, nodes):
    """salloc --no-shell: nobody has a context."""
    done = cluster.run("salloc", "--no-shell", "--gres=gpu:1", "-N1")
    job = int(done.stderr.split("Granted job allocation ")[1].split()[0])
    (node,) = started(cluster, job)
    nodes.watch(f"{RULE}: slurm=cancel")
    nodes.idle()
    assert "it is left alone" in nodes.said(node, "given up")
    assert cluster.state(job) == "RUNNING"
    nodes.watchers[node].kill()
    nodes.gpus[node].env["LULL_SLURM_INTERACTIVE"] = "cancel"
    nodes.watch(f"{RULE}: slurm=requeue", nodes=[node])
    wait_until(lambda: cluster.state(job) in ("CANCELLED", ""), what="the end of the allocation")


def test_a_task_of_an_array_is_acted_on_alone(cluster, nodes):
    job = cluster.submit("--array=1-2", "--exclusive")
    wait_until(lambda: len(cluster.ask("squeue", "-h", "-t", "R", "-o", "%A").split()) == 2, what="both tasks")
    def files(node):  # of jobs; there are others
        folder = cluster.runs / node
        return [path.name for path in folder.iterdir() if path.name.isdigit()] if folder.exists() else []
    wait_until(lambda: all(files(node) for node in cluster.nodes), what="the files of both")
    raw = {node: files(node)[0] for node in cluster.nodes}
    assert len(raw) == 2
    node = next(node for node, number in raw.items() if int(number) == job)  # the last task has the array's own number
    other = next(one for one in raw if one != node)
    nodes.watch(f"{RULE}: slurm=cancel")
    nodes.idle(node)
    wait_until(lambda: not (cluster.runs / node / str(job)).exists(), what="the end of the task")
    assert (cluster.runs / other / raw[other]).exists()
    assert len(cluster.ask("squeue", "-h", "-t", "R", "-o", "%A").split()) == 1


def test_a_task_of_an_array_on_two_nodes_is_asked_by_its_own_number(cluster, nodes):
    array = cluster.submit("--array=1-2", nodes=2)
    wait_until(lambda: len(cluster.ask("squeue", "-h", "-t", "R", "-o", "%A").split()) == 2, what="both tasks")
    first, second = array, array + 1  # the last task has the array's own number
    wait_until(lambda: len(cluster.runs_on(first)) == len(cluster.runs_on(second)) == 2, what="their files")
    nodes.watch(f"{RULE}: slurm=cancel", options=["-v"])
    idle = {node: gpu_of(cluster, node, first) for node in cluster.nodes}
    for node, gpu in idle.items():
        nodes.gpus[node].set(gpu, util=0)
    wait_until(lambda: not cluster.runs_on(first), what="the end of the task")
    assert len(cluster.runs_on(second)) == 2
    for node in cluster.nodes:
        nodes.gpus[node].set("all", util=0)
    wait_until(lambda: not cluster.runs_on(second), what="the end of the other task")


def gpu_of(cluster, node, job):
    (line,) = [line for line in (cluster.runs / node / str(job)).read_text().splitlines() if line.startswith("gpus")]
    return int(line.partition("[")[2].rstrip("]"))


def submit_het(cluster, *options):
    """Two components, each with the GPUs of one node; the numbers of both, and the node of each."""
    part = ("-N1", "--gres=gpu:2")
    done = cluster.run("sbatch", "--parsable", *options, "--wrap=sleep 1000", "-o", "/dev/null", *part, ":", *part)
    job = int(done.stdout.split(";")[0])
    wait_until(lambda: cluster.runs_on(job) and cluster.runs_on(job + 1), what="the het job")
    (first,), (second,) = cluster.runs_on(job), cluster.runs_on(job + 1)
    return job, first, second


def test_a_het_job_is_acted_on_as_a_whole_when_all_components_are_idle(cluster, nodes):
    job, first, second = submit_het(cluster)
    nodes.watch(f"{RULE}: slurm=requeue")
    nodes.idle(first)
    said = nodes.said(first, "not now")
    assert f"{second} says no" in said, said
    assert cluster.state(job) == "RUNNING" and cluster.field(job, "Restarts") == "0"
    nodes.idle(second)
    restarted(cluster, job)
    restarted(cluster, job + 1)


def test_a_later_component_of_a_het_job_does_nothing_while_the_first_works(cluster, nodes):
    job, first, second = submit_het(cluster, "--uid=nobody", "--gid=nogroup")
    nodes.watch(f"{RULE}: slurm=cancel")
    nodes.idle(second)
    said = nodes.said(second, "not now")
    assert f"{first} says no" in said, said
    assert cluster.state(job) == "RUNNING"
    nodes.idle(first)
    wait_until(lambda: not cluster.runs_on(job) and not cluster.runs_on(job + 1), what="the end of all components")


def hook_waits_for(second, first, nodes, log):
    """A hook of the job on both nodes runs once, when both are idle; what it wrote."""
    nodes.watch(f"{RULE}: exec=echo $LULL_JOB $LULL_JOB_ID >> {log}")
    nodes.idle(first)
    assert f"{second} says no" in nodes.said(first, "not now")
    assert not log.exists()
    nodes.idle(second)
    nodes.said(first, ": done")
    return log.read_text()


def test_a_hook_for_a_component_of_a_het_job_waits_for_the_others(cluster, nodes, tmp_path):
    job, first, second = submit_het(cluster)
    assert hook_waits_for(second, first, nodes, tmp_path / "log").split()[1:] == [str(job)]


def test_a_job_that_may_not_be_requeued_is_requeued_all_the_same(cluster, nodes):
    job = cluster.submit("--no-requeue")
    (node,) = started(cluster, job)
    nodes.watch(f"{RULE}: slurm=requeue")
    nodes.idle(node)
    restarted(cluster, job)


def test_a_signal_goes_to_all_that_is_in_the_job(cluster, nodes, tmp_path):
    mark = tmp_path / "got"
    job = cluster.submit(script=f"trap 'echo got > {mark}' TERM; while :; do sleep 0.1; done")
    (node,) = started(cluster, job)
    nodes.watch(f"{RULE}: slurm=signal:TERM")
    nodes.idle(node)
    wait_until(mark.exists, what="the signal")


def test_a_hook_for_a_job_on_two_nodes_runs_when_both_are_idle(cluster, nodes, tmp_path):
    job = cluster.submit(nodes=2)
    first, second = started(cluster, job, 2)
    assert hook_waits_for(second, first, nodes, tmp_path / "log") == f"slurm:{job} {job}\n"


def test_a_notification_for_a_job_on_two_nodes_is_sent_when_both_are_idle(cluster, nodes, tmp_path):
    job = cluster.submit(nodes=2)
    first, second = started(cluster, job, 2)
    heard = []

    class Ntfy(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            heard.append(self.headers["Title"] + "\n" + self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Ntfy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            address = tmp_path / "address"
            address.write_text(f"http://127.0.0.1:{server.server_port}/topic\n")
            address.chmod(0o600)
            for node in (first, second):
                nodes.gpus[node].env.update(no_proxy="127.0.0.1", NO_PROXY="127.0.0.1")
            nodes.watch(f"{RULE}: notify=ntfy:file:{address}")
            nodes.idle(first)
            assert f"{second} says no" in nodes.said(first, "not now") and not heard
            nodes.idle(second)
            nodes.said(first, ": done")
        finally:
            server.shutdown()
    (text,) = heard
    for part in (f"slurm:{job}", RULE, f"lull keep slurm:{job} 4h"):
        assert part in text, text


def test_a_controller_that_is_stopped_delays_and_does_nothing_wrong(cluster, nodes):
    job = cluster.submit(nodes=2)
    first, second = started(cluster, job, 2)
    pid = int((cluster.folder / "pid/slurmctld").read_text())
    nodes.watch(f"{RULE}: slurm=requeue")
    subprocess.run(["kill", "-STOP", str(pid)], check=True)
    try:
        nodes.idle()
        nodes.said(first, "not now")
    finally:
        subprocess.run(["kill", "-CONT", str(pid)], check=True)
    restarted(cluster, job)


def test_a_prolog_that_cannot_write_drains_no_node_and_its_job_is_not_judged(cluster, nodes):
    """As on a full disk (tests/e2e/test_slurm.py has one)."""
    for node in cluster.nodes:
        folder = cluster.runs / node
        if folder.exists():
            shutil.rmtree(folder)
        folder.write_text("a file is in its place")
    try:
        job = cluster.submit()
        wait_until(lambda: cluster.state(job) == "RUNNING", what="the job")
        nodes.watch(f"{RULE}: slurm=cancel", nodes=cluster.nodes[:1])
        nodes.idle()
        assert "Not a directory" in nodes.said(cluster.nodes[0], "Not a directory")
        assert cluster.ask("sinfo", "-h", "-t", "drain,down,fail", "-o", "%n") == ""
        assert cluster.state(job) == "RUNNING"
    finally:
        for node in cluster.nodes:
            (cluster.runs / node).unlink()


def test_end_is_refused_for_slurm_jobs(cluster, lull):
    for args in (["--per", "job", "--slurm", "--do", "end"], ["--per", "job", "--slurm", "--do", "park"], ["--per", "gpu", "--slurm", "--do", "slurm=cancel"],
                 ["--per", "job", "--do", "slurm=cancel"], ["--per", "job", "--slurm", "--do", "slurm=kill"]):
        done = cluster.run(lull, "watch", *args, check=False)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert "slurm=cancel" in cluster.run(lull, "watch", "--per", "job", "--slurm", "--do", "end", check=False).stderr


def test_keep_from_a_login_node_puts_it_off_by_the_comment_and_a_stranger_cannot(cluster, nodes, tmp_path):
    """No watcher is asked: the socket's folder is another one."""
    job = cluster.submit("--uid=nobody", "--gid=nogroup", "--comment=my run, x=1")
    (node,) = started(cluster, job)
    login = {"LULL_CONTROL": str(tmp_path)}
    keep = [cluster.lull, "keep", f"slurm:{job}", "1h"]
    done = cluster.run("runuser", "-u", "daemon", "--", *keep, check=False, env=login)
    assert done.returncode == 1 and "Invalid user id" in done.stderr, done.stderr
    assert "lull-keep" not in cluster.run("scontrol", "show", "job", job).stdout
    done = cluster.run("runuser", "-u", "nobody", "--", *keep, env=login)
    assert "kept" in done.stdout
    assert "Comment=my run, x=1 lull-keep=20" in cluster.run("scontrol", "show", "job", job).stdout
    nodes.watch(f"{RULE}: slurm=cancel")
    nodes.idle(node)
    nodes.said(node, "its Comment keeps it for")
    assert cluster.state(job) == "RUNNING"
    cluster.run("scontrol", "update", f"jobid={job}", "Comment=my run, x=1")
    nodes.watchers[node].kill()  # what was given stays given, until the file of it is gone
    (kept,) = cluster.runs.glob(f"{node}/kept")
    assert len(kept.read_text().split()) == 2
    kept.unlink()
    nodes.watch(f"{RULE}: slurm=cancel", nodes=[node])
    wait_until(lambda: cluster.state(job) in ("CANCELLED", ""), what="the end of the job")


def test_a_job_of_a_qos_or_account_or_partition_that_is_left_out_is_left_alone(cluster, nodes):
    job = cluster.submit()
    (node,) = started(cluster, job)
    nodes.gpus[node].env["LULL_SLURM_EXCEPT_PARTITION"] = "main"
    nodes.watch("util < 1 for 1s: slurm=cancel", nodes=[node])
    nodes.idle()
    wait_until(lambda: ask(cluster, nodes, node, job)["reason"] == "it is left alone here", what="an answer")
    nodes.watchers[node].kill()
    nodes.gpus[node].env["LULL_SLURM_EXCEPT_PARTITION"] = ""
    nodes.gpus[node].env["LULL_SLURM_EXCEPT_QOS"] = "high"  # of which the Prolog is told nothing
    nodes.watch("util < 1 for 1s: slurm=cancel", nodes=[node])
    wait_until(lambda: cluster.state(job) in ("CANCELLED", ""), what="the end of the job")


def test_the_file_of_a_job_that_slurm_does_not_know_is_removed_and_nothing_is_done(cluster, nodes):
    job = cluster.submit(nodes=2)
    first, _ = started(cluster, job, 2)
    stale = cluster.runs / first / "99999"
    stale.write_text((cluster.runs / first / str(job)).read_text().replace(f"job = {job}", "job = 99999"))
    nodes.watch("util < 1 for 1s: slurm=cancel", nodes=[first])
    nodes.idle(first)
    wait_until(lambda: not stale.exists(), what="the end of the file")
    assert cluster.state(job) == "RUNNING"


def test_a_stale_file_with_the_number_of_another_job_is_no_reason_to_act(cluster, nodes):
    """As after Slurm lost its state, and counts anew."""
    job = cluster.submit("--uid=nobody", "--gid=nogroup", nodes=2)
    first, second = started(cluster, job, 2)
    for node in (first, second):  # what another user's job on one node left behind
        file = cluster.runs / node / str(job)
        file.write_text(file.read_text().replace('user = "nobody"', 'user = "daemon"').replace("uid = 65534", "uid = 1")
                        .replace(f'nodes = "{cluster.prefix}[1-2]"', f'nodes = "{node}"'))
    nodes.watch("util < 1 for 1s: slurm=cancel", nodes=[first])
    nodes.idle(first)
    assert "another user" in nodes.said(first, "not now")
    assert cluster.state(job) == "RUNNING"


def test_a_file_of_an_older_job_on_another_gpu_is_no_reason_to_act(cluster, nodes):
    """With the same number, user, node and restarts. The Prolog of the job that runs could not write."""
    job = cluster.submit()
    (node,) = started(cluster, job)
    file = cluster.runs / node / str(job)
    assert "gpus = [0]" in file.read_text()
    file.write_text(file.read_text().replace("gpus = [0]", "gpus = [1]"))
    nodes.watch("util < 1 for 1s: slurm=cancel", nodes=[node])
    nodes.idle(node)
    assert f"Slurm gave job {job} other GPUs than were judged" in nodes.said(node, "not now")
    assert cluster.state(job) == "RUNNING"
    file.write_text(file.read_text().replace("gpus = [1]", "gpus = [0]"))
    wait_until(lambda: cluster.state(job) in ("CANCELLED", ""), what="the end of the job")


def test_a_file_of_an_older_job_gives_a_new_one_no_idle_time(cluster, nodes):
    """With the same number, user, node, GPU and restarts. The Epilog of the older one failed, and the Prolog of the new one."""
    older = cluster.submit()
    (node,) = started(cluster, older)
    text = (cluster.runs / node / str(older)).read_text()
    cluster.cancel_all()
    wait_until(lambda: not cluster.runs_on(older), what="the Epilog")
    prolog = cluster.folder / "etc/prolog"
    script = prolog.read_text()
    prolog.write_text("#!/bin/sh\nexit 0\n")
    try:
        (cluster.runs / node / str(older + 1)).write_text(text.replace(f"job = {older}", f"job = {older + 1}"))
        nodes.idle(node)
        nodes.watch("util < 1 for 9s: slurm=cancel", nodes=[node])
        wait_until(lambda: ask(cluster, nodes, node, older + 1)["held_seconds"] > 4, what="idle time before the job began")
        job = cluster.submit("-w", node)
        assert job == older + 1
        wait_until(lambda: cluster.state(job) == "RUNNING", what="the job")
        begun = time.time()
        wait_until(lambda: cluster.state(job) == "CANCELLED", what="the end of the job")
        assert time.time() - begun >= 7, "Slurm tells whole seconds"
    finally:
        prolog.write_text(script)


@pytest.mark.long
def test_a_job_that_was_suspended_has_its_time_again(cluster, nodes):
    """It holds no GPU, which is idle all the while."""
    job = cluster.submit()
    (node,) = started(cluster, job)
    nodes.idle(node)
    cluster.run("scontrol", "suspend", str(job))
    nodes.watch("util < 1 for 15s: slurm=cancel", nodes=[node])
    assert f"job {job} is SUSPENDED now" in nodes.said(node, "not now")
    cluster.run("scontrol", "resume", str(job))
    resumed = time.time()
    wait_until(lambda: cluster.state(job) in ("CANCELLED", ""), what="the end of the job")
    assert time.time() - resumed >= 14, "Slurm tells whole seconds"
