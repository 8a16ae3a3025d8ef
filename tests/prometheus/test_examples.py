"""examples/prometheus: what promtool says of it, what `lull check` prints, and every query of the dashboard."""
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import time

import pytest

from server import SETTLED
from waiting import LIMIT

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "examples" / "prometheus"
MADE = ["idle-jobs.rules.yml", "idle-gpus.rules.yml", "hung-gpus.rules.yml"]
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text())
QUERIES = [(panel["title"], target) for panel in DASHBOARD["panels"] for target in panel["targets"]]


def test_promtool_accepts_configuration_and_rules(tmp_path):
    folder = shutil.copytree(FOLDER, tmp_path / "examples")
    for secret in ("lull-ca.pem", "lull.token"):  # which a site has
        (folder / secret).write_text("")
    done = subprocess.run(["promtool", "check", "config", "--lint=all", "--lint-fatal", folder / "prometheus.yml"],
                          capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stdout + done.stderr
    files = sorted(path.name for path in FOLDER.glob("*.rules.yml"))
    assert files == sorted([*MADE, "use.rules.yml"]) and all(name in done.stdout for name in files)


@pytest.mark.parametrize("name", MADE)
def test_alerts_are_what_lull_check_prints(run_lull, name):
    first, rest = (FOLDER / name).read_text().split("\n", 1)
    words = shlex.split(first.removeprefix("# "))
    assert words[:2] == ["lull", "check"]
    done = run_lull(*words[1:])
    assert done.returncode == 0 and done.stdout == rest


@pytest.fixture(scope="module")
def filled():
    """All metrics that the examples name, for two hosts and two hours. GPU 1 of gpu01 hangs, the others do nothing; gpu02's sampler is stuck."""
    from server import Prometheus
    end = int(time.time()) - SETTLED
    times = range(end - 7200, end, 30)
    metrics = {}

    def add(name, value, **labels):
        metrics.setdefault(name, []).append((labels, [(at, value(at - times[0])) for at in times]))

    for host in ("gpu01", "gpu02"):
        lull = {"instance": f"{host}:9836", "job": "lull"}
        add("lull_up", lambda _, host=host: 1 if host == "gpu01" else 0, **lull)
        add("up", lambda _: 1, **lull)
        for gpu in ("0", "1"):
            own = {**lull, "gpu": gpu, "uuid": f"GPU-{host}-{gpu}"}
            hung = (host, gpu) == ("gpu01", "1")
            add("lull_gpu_up", lambda _: 1, **own)
            add("lull_gpu_utilization_ratio", lambda _, hung=hung: float(hung), **own)
            add("lull_gpu_learned_seconds", lambda _: 3600, **own)
            if hung:  # of a GPU without work there is none
                add("lull_gpu_effort_ratio", lambda _: 0.2, **own)
            add("lull_gpu_power_limit_watts", lambda _: 100, **own)
            add("lull_gpu_busy_seconds_total", lambda at: at / 2, **own)
            add("lull_gpu_seen_seconds_total", lambda at: at, **own)
            add("lull_gpu_power_watts", lambda _: 60, **own)
            add("lull_gpu_memory_used_bytes", lambda _: 1e9, **own)
            add("lull_gpu_memory_total_bytes", lambda _: 8e10, **own)
            add("lull_gpu_idle_seconds", lambda at: at, **own)
            add("lull_gpu_job_info", lambda _: 1, **own, job_id="slurm:7", user="ada")
            add("DCGM_FI_DEV_GPU_UTIL", lambda _: 0, Hostname=host, gpu=gpu, UUID=f"GPU-{host}-{gpu}", hpc_job="7",
                user="ada", instance=f"{host}:9400", job="dcgm")
        add("lull_job_idle_seconds", lambda at: at, **lull, job_id="slurm:7", user="ada")
    server = Prometheus(metrics)
    server.end = times[-1]
    yield server
    server.close()


@pytest.mark.parametrize("title, target", QUERIES, ids=[title for title, _ in QUERIES])
def test_each_query_of_the_dashboard_answers(filled, title, target):
    query = target["expr"]
    for variable, value in (("$instance", ".*"), ("$__range", "1h"), ("$__rate_interval", "2m")):
        query = query.replace(variable, value)
    assert "$" not in query
    found = filled.ask("query", query=query, time=filled.end)["result"]
    assert found and all(series["value"][1] != "NaN" for series in found)


def test_the_variable_of_the_dashboard_has_values(filled):
    names = [one["query"]["query"] for one in DASHBOARD["templating"]["list"] if one["type"] == "query"]
    assert names == ["label_values(lull_gpu_up, instance)"]
    assert {one["metric"]["instance"] for one in filled.ask("query", query="lull_gpu_up", time=filled.end)["result"]} == {
        "gpu01:9836", "gpu02:9836"}


def rules(name):
    """{record or alert: its query} of a file."""
    text = (FOLDER / name).read_text()
    found = re.findall(r"- (?:record|alert): '?([^'\n]+)'?\n +expr: (?:\|\n)?(.*?)(?=\n +(?:- |for:|labels:|#)|\Z)", text, re.S)
    assert len(found) == text.count("expr:")
    return dict(found)


@pytest.mark.parametrize("name, alert, who", [
    ("idle-jobs.rules.yml", "JobIdle", [{"hpc_job": "7"}]),
    ("idle-gpus.rules.yml", "GpuIdle", [{"instance": f"{host}:9836", "gpu": gpu, "uuid": f"GPU-{host}-{gpu}"}
                                        for host, gpu in (("gpu01", "0"), ("gpu02", "0"), ("gpu02", "1"))]),
    ("hung-gpus.rules.yml", "GpuHung", [{"instance": "gpu01:9836", "gpu": "1", "uuid": "GPU-gpu01-1"}]),
    ("use.rules.yml", "GpusNotSeen", [{"__name__": "lull_up", "instance": "gpu02:9836", "job": "lull"}]),
])
def test_an_alert_fires_for_those_alone_whom_it_is_about(filled, name, alert, who):
    found = [series["metric"] for series in filled.ask("query", query=rules(name)[alert], time=filled.end)["result"]]
    assert sorted(found, key=str) == sorted(who, key=str)


@pytest.mark.parametrize("record, values", [
    ("instance:lull_gpu_busy:ratio_rate5m", [0.5, 0.5]), ("instance:lull_gpu_power_watts:sum", [120, 120]),
    ("host:dcgm_gpu_util:ratio", [0, 0]), ("job:dcgm_gpus:count", [4]),
])
def test_a_recording_rule_records_the_use(filled, record, values):
    found = filled.ask("query", query=rules("use.rules.yml")[record], time=filled.end)["result"]
    assert [float(series["value"][1]) for series in found] == pytest.approx(values)
