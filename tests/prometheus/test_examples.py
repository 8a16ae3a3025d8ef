"""examples/prometheus: what promtool says of it, what `lull check` prints, and every query of the dashboard."""
import json
import pathlib
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
    """All metrics that the examples name, for two hosts and two hours."""
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
            add("lull_gpu_up", lambda _: 1, **own)
            add("lull_gpu_utilization_ratio", lambda _: 0.0, **own)
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


@pytest.mark.parametrize("name, fires", [("idle-jobs.rules.yml", 1), ("hung-gpus.rules.yml", 0)])
def test_an_alert_fires_for_what_is_idle(filled, name, fires):
    text = (FOLDER / name).read_text()
    query = text[text.index("expr: |") + 7:text.index("        labels:")]
    assert len(filled.ask("query", query=query, time=filled.end)["result"]) == fires
