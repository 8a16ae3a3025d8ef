"""`lull watch --from prometheus:URL --per job --slurm` with stand-ins for Slurm's commands and for Prometheus.

A real Slurm and a real Prometheus are in tests/slurm/test_fleet.py.
"""
import json
import signal
import subprocess
import time

import pytest

from conftest import LIMIT, clean_environment, read_until, wait_until
from test_prometheus import StandIn
from test_slurm import row

RULE = "util < 1 for 10s"


def series(host, gpu, util=0, until=0.0, hole=None, name="DCGM_FI_DEV_GPU_UTIL"):
    """A sample each second of the last minute, up to `until` seconds ago."""
    now = time.time()
    times = [now - ago for ago in range(60, 0, -1) if ago >= until and not (hole and hole[0] <= ago <= hole[1])]
    return {"metric": {"__name__": name, "Hostname": host, "gpu": str(gpu), "UUID": f"GPU-{host}-{gpu}"},
            "values": [[round(at, 3), str(util)] for at in times]}


def told(**more):
    whole_answer = {"status": "success", "data": {"resultType": "matrix", "result": whole(0)}, **more}
    return json.dumps(whole_answer, separators=(",", ":")).encode()


def shifted(result, by):
    return [{**one, "values": [[at + by, value] for at, value in one["values"]]} for one in result]


class Cluster:
    """Job 22 of ada with GPU 0 of n1 and of n2, since five minutes. n2 has a second GPU."""

    def __init__(self, programs):
        self.programs = programs
        programs.add("sinfo", f"cat <<'END'\n{'n1':256}{'gpu:1':512}\n{'n2':256}{'gpu:a100:2(S:0,1)':512}\nEND")
        self.job()

    def job(self, details="     Nodes=n[1-2] CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0)", comment="", started=300, state="RUNNING", restarts=0,
            name="train", suspended="None", batch=1):
        start = int(time.time()) - started
        listed = f"{22:<24}{restarts:<16}{1000:<16}{'ada':64}{start:<24}{'N/A':24}{'main':64}{'(null)':64}{'(null)':64}{'N/A':512}"
        nodes = f"{22:<24}{restarts:<16}{'n[1-2]':8192}"
        shown = f"JobId=22 JobName={name}\n   StartTime={start} EndTime=Unknown\n   SuspendTime={suspended} SecsPreSuspend=0\n{details}\n   MinCPUsNode=1"
        self.programs.add("squeue", f"""case "$*" in
*tres-alloc*) cat <<'END'
{row(state, restarts, batch, count=2, nodes="n[1-2]", tres="cpu=2,node=2,billing=2,gres/gpu=2")}
END
;; *UserName*) cat <<'END'
{listed if state == "RUNNING" else ""}
END
;; *NodeList*) cat <<'END'
{nodes}
END
;; *%k*) echo '22 {comment}'
;; esac""")
        self.programs.add("scontrol", f"""case "$*" in show*) cat <<'END'
{shown}
END
;; esac""")
        self.programs.add("scancel")

    def acted(self):
        return [call for call in self.programs.calls() if call.startswith("scancel")]


@pytest.fixture
def cluster(programs):
    return Cluster(programs)


@pytest.fixture
def judge(lull, programs):
    """judge(server, …): started, once it watches; ended with the test."""
    started = []

    def start(server, *options, step=f"{RULE}: slurm=cancel", order=("--slurm-order",)):
        one = subprocess.Popen([lull, "watch", "--from", server.url, "--per", "job", "--slurm", "--every", "500ms", "--step", step,
                                *order, *options],
                               env=clean_environment(PATH=programs.path), stderr=subprocess.PIPE, text=True)
        started.append(one)
        read_until(one.stderr, "watching the Slurm jobs of the cluster")
        return one

    yield start
    for one in started:
        one.kill()
        one.communicate(timeout=LIMIT)


def whole(_):
    return [series("n1", 0), series("n2:9400", 0), series("n2:9400", 1, util=90)]


def test_labels_name_those_of_the_node_and_of_the_gpu(cluster, judge):
    """The usual ones are the exporter's own here."""
    def renamed(_):
        return [{**one, "metric": {"__name__": one["metric"]["__name__"], "Hostname": "exporter", "gpu": f"{number}",
                                   "node": one["metric"]["Hostname"], "minor": one["metric"]["gpu"]}} for number, one in enumerate(whole(_))]
    with StandIn(body=renamed) as server:
        one = judge(server, "--labels", "host=node,gpu=minor")
        read_until(one.stderr, "slurm=cancel")
        wait_until(cluster.acted, what="the end of the job")
        assert cluster.acted() == ["scancel 22"]


def test_a_job_whose_gpus_are_all_idle_is_acted_on_once(cluster, judge):
    with StandIn(body=whole) as server:
        one = judge(server)
        read_until(one.stderr, "slurm=cancel")
        wait_until(cluster.acted, what="the end of the job")
        read_until(one.stderr, "done")
        time.sleep(3)
        assert cluster.acted() == ["scancel 22"]
        comments = [call for call in cluster.programs.calls() if "AdminComment" in call]
        assert len(comments) == 1 and f"lull: {RULE} held for" in comments[0] and "n1/0,n2/0" in comments[0]
        assert all("time" not in asked for asked in server.asked), "the server's own clock counts"


def test_without_a_proof_of_the_order_a_part_of_a_node_is_not_judged(cluster, judge):
    """n1/0 is all of n1. Which GPU of n2 Slurm means is not known, until the administrator says it."""
    with StandIn(body=lambda _: [*whole(0)[:2], series("n2:9400", 1)]) as server:
        one = judge(server, order=())
        said = read_until(one.stderr, "not judged")
        assert "the exporter of n2 may number GPUs in another order than Slurm" in said and "--slurm-order" in said
        asked = len(server.asked)
        wait_until(lambda: len(server.asked) > asked + 5, what="more looks")
        assert not cluster.acted()


def test_a_job_with_all_gpus_of_its_nodes_needs_no_proof_of_the_order(cluster, judge, programs):
    programs.add("sinfo", f"cat <<'END'\n{'n1':256}{'gpu:1':512}\n{'n2':256}{'gpu:1':512}\nEND")
    with StandIn(body=lambda _: whole(0)[:2]) as server:
        judge(server, order=())
        wait_until(cluster.acted, what="the end of the job")


def test_an_exporter_that_has_lost_a_gpu_proves_nothing(cluster, judge):
    with StandIn(body=lambda _: whole(0)[:2]) as server:
        one = judge(server)
        assert "Slurm has 2 GPUs on n2, and series of now tell of 1" in read_until(one.stderr, "not judged")
        asked = len(server.asked)
        wait_until(lambda: len(server.asked) > asked + 5, what="more looks")
        assert not cluster.acted()


def test_no_command_is_run_for_an_interactive_job_that_is_left_alone(cluster, judge, tmp_path):
    cluster.job(batch=0)
    ran = tmp_path / "ran"
    with StandIn(body=whole) as server:
        one = judge(server, step=f"{RULE}: exec=touch {ran}")
        read_until(one.stderr, "it is left alone (slurm.interactive)")
        time.sleep(1)
        assert not ran.exists()


@pytest.mark.parametrize("body, said", [
    (lambda _: [series("n1", 0)], "no series tells of GPU 0 of n2"),
    (lambda _: [series("n1", 0), series("n2", 1)], "no series tells of GPU 0 of n2"),
    (lambda _: [series("n1", 0), series("n2", 0, until=15)], "GPU 0 of n2 was seen last"),
    (lambda _: [series("n1", 0), series("n2", 0), series("n2.b", 0)], "GPU 0 of n2 may be any of several series"),
    (lambda _: [series("n1", 0), series("n3", 0)], "no series tells of GPU 0 of n2"),
    (lambda _: [series("n1.a", 0), series("n2.b", 0)], "GPU 0 of n1 may be of another cluster"),
    (lambda _: [], "no series tells of GPU 0 of n1"),
], ids=["missing", "another", "ended", "two", "host", "domains", "none"])
def test_a_gpu_that_is_not_seen_is_never_idle(cluster, judge, body, said):
    with StandIn(body=body) as server:
        one = judge(server)
        read_until(one.stderr, said)
        asked = len(server.asked)
        wait_until(lambda: len(server.asked) > asked + 5, what="more looks")
        assert not cluster.acted()


@pytest.mark.parametrize("body", [
    lambda _: [series("n1", 0), series("n2", 0, util=90), series("n2", 1)],
    lambda _: [series("n1", 0), series("n2", 0, hole=(3, 8)), series("n2", 1)],
], ids=["busy", "hole"])
def test_a_busy_gpu_or_a_hole_is_no_idle_time(cluster, judge, body):
    with StandIn(body=body) as server:
        judge(server)
        wait_until(lambda: len(server.asked) > 8, what="some looks")
        assert not cluster.acted()


@pytest.mark.parametrize("refusal, said", [
    (lambda asked: (503, b"busy"), "it answers 503 busy"),
    (lambda asked: (200, b'{"status":"error"}'), "it answers 200"),
    (lambda asked: (200, b""), "it answers 200"),
    (lambda asked: (200, told(warnings=["a store did not answer"])), "it does not have all of it: \"a store did not answer\""),
    (lambda asked: (200, told(warnings=["a store did not answer"] * 20000)), "it does not have all of it: \"a store did not answer\""),
    (lambda asked: (200, told(isPartial=True)), "it does not have all of it: isPartial"),
], ids=["503", "error", "empty", "partial", "partial at length", "partial of VictoriaMetrics"])
def test_a_server_that_does_not_answer_rightly_does_nothing(cluster, judge, refusal, said):
    with StandIn(fail=lambda _, asked: refusal(asked), body=whole) as server:
        one = judge(server)
        assert said in read_until(one.stderr, "no job is judged")
        wait_until(lambda: len(server.asked) > 6, what="more looks")
        assert not cluster.acted()
        one.send_signal(signal.SIGTERM)
        assert "no job is judged" not in one.communicate(timeout=LIMIT)[1], "it is said once"


@pytest.mark.parametrize("behind", [600, -600])
def test_an_answer_of_another_time_does_nothing(cluster, judge, behind):
    """Kept by a cache, or of a server whose clock was set back: what was idle then may work now."""
    with StandIn(body=lambda _: shifted(whole(0), -behind), behind=behind) as server:
        one = judge(server)
        said = read_until(one.stderr, "no job is judged")
        assert f"{'behind' if behind > 0 else 'ahead of'} ours: too far apart" in said
        wait_until(lambda: len(server.asked) > 6, what="more looks")
        assert not cluster.acted()


def test_slurm_that_does_not_answer_does_nothing(cluster, judge, programs):
    programs.add("squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
    with StandIn(body=whole) as server:
        one = judge(server)
        assert "Slurm's controller does not answer" in read_until(one.stderr, "no job is judged")
        assert not cluster.acted()


@pytest.mark.parametrize("job, said", [
    ({"details": "     Nodes=n[1-2] CPU_IDs=0 Mem=0 GRES=shard:1(0/2)"}, "does not say which GPUs"),
    ({"details": "     Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0)"}, "does not say which GPUs"),
    ({"name": "x\n     Nodes=n2 CPU_IDs=0 Mem=0 GRES="}, "does not say which GPUs"),
    ({"started": 1}, "has not been seen often enough"),
    ({"comment": "lull-keep=2099-01-01T00:00:00Z"}, "its Comment keeps it for"),
])
def test_a_job_that_is_not_understood_or_is_kept_is_left_alone(cluster, judge, job, said):
    cluster.job(**job)
    with StandIn(body=whole) as server:
        one = judge(server, "--keep-at-most", "1h")
        read_until(one.stderr, said)
        if "started" not in job:
            asked = len(server.asked)
            time.sleep(2)
            assert len(server.asked) >= asked
        assert not cluster.acted()


def test_time_in_which_a_job_was_suspended_does_not_count(cluster, judge):
    cluster.job(suspended=str(int(time.time()) - 5))
    with StandIn(body=whole) as server:
        judge(server)
        wait_until(lambda: len(server.asked) > 4, what="some looks")
        assert not cluster.acted()


def test_a_dry_run_says_what_it_would_do(cluster, judge):
    with StandIn(body=whole) as server:
        one = judge(server, "--dry-run")
        assert RULE in read_until(one.stderr, "Slurm job 22 of ada")
        assert not cluster.acted()


@pytest.mark.parametrize("words, reason", [
    (["--from", "prometheus:localhost:9090", "--per", "job", "--slurm", "--step", f"{RULE}: slurm=cancel"], "http://HOST:9090 would be right"),
    (["--from", "night.csv", "--per", "job", "--slurm", "--step", f"{RULE}: slurm=cancel"], "prometheus:http://HOST:9090 would be right"),
    (["--from", "prometheus:http://x", "--per", "job", "--step", "util < 1 for 1h: end"], "needs --per job --slurm"),
    (["--from", "prometheus:http://x", "--do", "exit"], "needs --per job --slurm"),
    (["--from", "prometheus:http://x", "--per", "job", "--slurm", "--step", "util < 1: slurm=cancel"], "a single sample"),
    (["--from", "prometheus:http://x", "--per", "job", "--slurm", "--step", "util < 1 for 5 samples: slurm=cancel"], "say a time"),
    (["--from", "prometheus:http://x", "--per", "job", "--slurm", "--step", f"{RULE}: slurm=cancel", "--arm", "util > 5"], "--arm"),
    (["--from", "prometheus:http://x", "--per", "job", "--slurm", "--step", f"{RULE}: slurm=cancel", "--gpus", "0"], "--gpus"),
    (["--from", "prometheus:http://x", "--per", "job", "--slurm", "--step", f"{RULE}: end"], "slurm=cancel or slurm=requeue is meant"),
    (["--from", "prometheus:http://x", "--per", "job", "--slurm", "--step", f"{RULE}: park"], "slurm=cancel or slurm=requeue is meant"),
    (["--slurm-order", "--per", "job", "--slurm", "--step", f"{RULE}: slurm=cancel"], "are about --from"),
    (["--match", "a=1", "--per", "job", "--slurm", "--step", f"{RULE}: slurm=cancel"], "are about --from"),
])
def test_what_cannot_be_judged_so_is_refused_in_one_line(run_lull, words, reason):
    done = run_lull("watch", *words)
    assert done.returncode == 2 and reason in done.stderr and done.stderr.count("\n") == 1, done.stderr
