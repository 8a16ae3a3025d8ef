"""A real Prometheus that scrapes `lull serve`: what it stores, what goes stale, and what an alert comes to."""
import http.server
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import threading
import time

import pytest

from lull_e2e import Sim, read_until
from server import Prometheus
from waiting import LIMIT, wait_until

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "prometheus"


class Scraped:
    """Simulated GPUs, `lull serve` on loopback, and a Prometheus that scrapes it each second."""

    def __init__(self, lull, count=2, more="", every="250ms"):
        self.gpus = Sim(lull, count)
        self.prometheus = None
        self.serve = self.gpus.start_lull("serve", "--listen", "127.0.0.1:0", "--every", every)
        line = read_until(self.serve.stderr, "\n")
        assert "serving on " in line, line
        self.port = int(line.strip().rpartition(":")[2])
        self.start = lambda: Prometheus({}, config="global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\n"
                                        f"scrape_configs:\n- job_name: lull\n  static_configs: [{{targets: ['127.0.0.1:{self.port}']}}]\n{more}")

    def begin(self):
        self.prometheus = self.start()
        wait_until(lambda: self.value("lull_up") == [1], what="the first scrape")
        return self

    def value(self, query):
        return sorted(float(one["value"][1]) for one in self.prometheus.ask("query", query=query)["result"])

    def close(self):
        if self.prometheus:
            self.prometheus.close()
        self.gpus.close()


@pytest.fixture
def scraped(lull):
    started = []

    def start(**kwargs):
        started.append(Scraped(lull, **kwargs))
        return started[-1]

    yield start
    for one in started:
        one.close()


def test_what_is_scraped_is_what_the_gpus_do(scraped):
    one = scraped()
    one.gpus.set(0, util=80)
    one.begin()
    wait_until(lambda: len(one.value("lull_gpu_utilization_ratio")) == 2, what="both GPUs")
    wait_until(lambda: one.value('lull_gpu_utilization_ratio{gpu="0"}')[0] > 0.7, what="what GPU 0 does")
    assert one.value('lull_gpu_utilization_ratio{gpu="1"}') == [0]
    wait_until(lambda: one.value('rate(lull_gpu_seen_seconds_total{gpu="0"}[5s])') and
               0.5 < one.value('rate(lull_gpu_seen_seconds_total{gpu="0"}[5s])')[0] < 1.5, what="the time that is seen")


def test_a_driver_that_hangs_makes_its_series_stale_and_lull_up_0(scraped):
    """SIGSTOP of the sampler, in effect: what was seen before is not served as now."""
    one = scraped().begin()
    wait_until(lambda: len(one.value("lull_gpu_utilization_ratio")) == 2, what="both GPUs")
    one.gpus.fault("all", "hang=1000s")
    began = time.monotonic()
    wait_until(lambda: one.value("lull_up") == [0], what="lull_up 0")
    wait_until(lambda: not one.value("lull_gpu_utilization_ratio"), what="stale series")
    # Three intervals of lull's, a scrape, and what a loaded machine takes; never the five minutes that Prometheus looks back.
    assert time.monotonic() - began < 30
    assert one.value("up") == [1] and not one.value("lull_gpu_busy_seconds_total")
    one.gpus.clear()
    wait_until(lambda: one.value("lull_up") == [1] and len(one.value("lull_gpu_utilization_ratio")) == 2, what="the GPUs again")


def test_a_stopped_server_leaves_no_series_behind(scraped):
    one = scraped().begin()
    wait_until(lambda: len(one.value("lull_gpu_utilization_ratio")) == 2, what="both GPUs")
    os.kill(one.serve.pid, signal.SIGSTOP)
    try:
        wait_until(lambda: one.value("up") == [0] and not one.value("lull_gpu_utilization_ratio") and not one.value("lull_up"),
                   what="stale series")
    finally:
        os.kill(one.serve.pid, signal.SIGCONT)
    wait_until(lambda: one.value("lull_up") == [1], what="the server again")


def test_the_examples_name_only_metrics_that_are_served(scraped):
    one = scraped()
    used = set()
    for file in [*EXAMPLES.glob("*.yml"), EXAMPLES / "dashboard.json"]:
        text = re.sub(r"\w+:lull_\w+:\w+", "", file.read_text())  # names that rules record
        used |= set(re.findall(r"\b(lull_[a-z0-9_]+)\b", text))
    assert "lull_job_idle_seconds" in used
    served = set()

    def missing():
        done = subprocess.run(["curl", "-s", f"http://127.0.0.1:{one.port}/metrics"], capture_output=True, text=True, timeout=LIMIT)
        served.update(re.findall(r"^# TYPE (\S+)", done.stdout, re.M))
        return used - served - {"lull_gpu_effort_ratio"}  # served once a card is learned: test_serve.py

    # A job with a name that lasts: the processes of a lease. Counters begin with the second sample.
    one.gpus.start_lull("pick", "--gpus", "0", "--", one.gpus.binary, "sim", "load", "--gpu", "0", "--mem", "1GiB")
    try:
        wait_until(lambda: not missing(), every=0.05)
    except AssertionError:
        raise AssertionError(f"not served: {missing()}") from None


def test_the_example_scrapes_a_server_with_tls_and_a_token(lull, tmp_path):
    """As `lull serve` must have them where another machine asks."""
    certificate, key, token, tokens = (tmp_path / name for name in ("lull-ca.pem", "key.pem", "lull.token", "tokens"))
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
                    "/CN=gpu01", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate], check=True, capture_output=True)
    token.write_text("a-token-of-more-than-16-characters\n")
    tokens.write_text(token.read_text())
    tokens.chmod(0o600)
    gpus, prometheus = Sim(lull, 1), None
    try:
        serve = gpus.start_lull("serve", "--listen", "127.0.0.1:0", "--every", "250ms", "--tls-cert", certificate, "--tls-key", key,
                                "--token-file", tokens)
        port = int(read_until(serve.stderr, "\n").strip().rpartition(":")[2])
        config = (EXAMPLES / "prometheus.yml").read_text()
        config = re.sub(r"  - job_name: dcgm.*?(?=  - job_name)|rule_files:.*?(?=\n\n)", "", config, flags=re.S)
        for there, here in (("30s", "1s"), ("10s", "1s"), ('["gpu01:9836", "gpu02:9836"]', f"['127.0.0.1:{port}']"),
                            (certificate.name, str(certificate)), (token.name, str(token))):
            assert there in config, there
            config = config.replace(there, here)
        prometheus = Prometheus({}, config=config)
        wait_until(lambda: prometheus.ask("query", query="lull_up == 1")["result"], what="a scrape")
    finally:
        if prometheus:
            prometheus.close()
        gpus.close()


class Hook(http.server.ThreadingHTTPServer):
    """What Alertmanager sends."""
    daemon_threads = True

    def __init__(self):
        self.alerts = []
        super().__init__(("127.0.0.1", 0), HookHandler)
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def close(self):
        self.shutdown()
        self.thread.join()
        self.server_close()


class HookHandler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.alerts += body["alerts"]
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def alertmanager(tmp_path):
    """Its address, and what its web hook got."""
    program = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
    if program is None:
        pytest.skip("no Alertmanager (prometheus-alertmanager)")
    hook = Hook()
    (tmp_path / "alertmanager.yml").write_text(
        "route: {receiver: hook, group_wait: 0s, group_interval: 1s, repeat_interval: 1h, group_by: ['...']}\n"
        f"receivers: [{{name: hook, webhook_configs: [{{url: 'http://127.0.0.1:{hook.server_address[1]}/', send_resolved: true}}]}}]\n")
    process = None
    for _ in range(5):
        with http.server.HTTPServer(("127.0.0.1", 0), HookHandler) as probe:
            port = probe.server_address[1]
        process = subprocess.Popen([program, f"--config.file={tmp_path}/alertmanager.yml", f"--storage.path={tmp_path}/data",
                                    f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address=", "--log.level=error"],
                                   stderr=open(tmp_path / "log", "w"))

        def ready():
            return process.poll() is not None or subprocess.run(
                ["curl", "-sf", f"http://127.0.0.1:{port}/-/ready"], capture_output=True, timeout=LIMIT).returncode == 0
        wait_until(ready, what="an Alertmanager")
        if process.poll() is None:
            break
    assert process.poll() is None, (tmp_path / "log").read_text()
    yield f"127.0.0.1:{port}", hook.alerts
    process.kill()
    process.wait(timeout=LIMIT)
    hook.close()


def test_an_alert_that_lull_writes_reaches_who_is_on_call(scraped, alertmanager, run_lull, tmp_path):
    """lull check --alert -> Prometheus -> Alertmanager -> a web hook, for the idle GPU and not for the busy one."""
    address, alerts = alertmanager
    rule = run_lull("check", "util < 1 for 10s", "--promql", "--metrics", "lull", "--interval", "1s", "--alert", "GpuIdle")
    assert rule.returncode == 0, rule.stderr
    rules = tmp_path / "idle.rules.yml"
    rules.write_text(rule.stdout)
    one = scraped(more=f"rule_files: ['{rules}']\nalerting: {{alertmanagers: [{{static_configs: [{{targets: ['{address}']}}]}}]}}\n")
    one.gpus.set(0, util=90)
    one.begin()
    wait_until(lambda: [a for a in alerts if a["status"] == "firing"], limit=90, what="the alert")
    assert {(a["labels"]["alertname"], a["labels"]["gpu"]) for a in alerts} == {("GpuIdle", "1")}
    assert "util < 1 for 10s" in alerts[0]["annotations"]["summary"]
    one.gpus.set(1, util=90)
    wait_until(lambda: [a for a in alerts if a["status"] == "resolved"], limit=90, what="the end of the alert")
    assert {a["labels"]["gpu"] for a in alerts} == {"1"}
