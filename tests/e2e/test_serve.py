"""`lull serve`: addresses, access, limits, metrics and JSON over HTTP, on simulated GPUs."""
import base64
import contextlib
import datetime
import fcntl
import getpass
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time

import pytest

from conftest import LIMIT, clean_environment, processes_of, read_until, wait_until

TOKEN = "a-token-of-more-than-16-characters"


class Served:
    """A running lull-serve and how to ask it."""

    def __init__(self, process, address):
        self.process = process
        self.path = address[5:] if address.startswith("unix:") else None
        self.port = None if self.path else int(address.rpartition(":")[2])
        self.tls = address.startswith("https:")

    def connect(self):
        if self.path:
            one = socket.socket(socket.AF_UNIX)
            one.settimeout(LIMIT)
            one.connect(self.path)
            return one
        one = socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT)
        if self.tls:
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            one = context.wrap_socket(one)
        return one

    def raw(self, request):
        """All that comes back until the other side closes."""
        with self.connect() as one:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                one.sendall(request)
            answer = b""
            with contextlib.suppress(ConnectionResetError):
                while more := one.recv(1 << 16):
                    answer += more
        return answer

    def get(self, path, method="GET", **headers):
        lines = [f"{method} {path} HTTP/1.1", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in {"Host": "localhost", **headers}.items()]
        head, _, body = self.raw(("\r\n".join(lines) + "\r\n\r\n").encode()).partition(b"\r\n\r\n")
        return int(head.split()[1]), head.decode(), body.decode()

    def text(self, path, **headers):
        status, head, body = self.get(path, **headers)
        assert status == 200, (head, body)
        return body

    def json(self, path):
        return json.loads(self.text(path))

    def metrics(self):
        return metrics_of(self.text("/metrics"))

    def up(self):
        """Once the first sample is there."""
        wait_until(lambda: self.metrics().get("lull_up") == 1, what="the first sample")
        return self


def metrics_of(text):
    """By name and labels as they stand there."""
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if not line.startswith("#")}


@pytest.fixture
def serve(tmp_path):
    """serve(gpus, …): lull serve in a simulation, once it listens."""
    def start(gpus, *options, listen=None, every="100ms", **kwargs):
        listen = listen or f"unix:{tmp_path}/serve.sock"
        process = gpus.start_lull("serve", "--listen", listen, "--every", every, *options, **kwargs)
        line = read_until(process.stderr, "\n")
        assert "serving on " in line, line + process.stderr.read()
        return Served(process, line.split("serving on ")[1].strip())
    return start


def ended(process):
    process.wait(timeout=LIMIT)
    return process.returncode


# -- where it listens -------------------------------------------------------------------------------
@pytest.mark.parametrize("listen", ["0.0.0.0:0", "192.0.2.1:9836", "[::]:0", "[2001:db8::1]:80"])
@pytest.mark.parametrize("given", [[], ["--token-file", "TOKENS"], ["--tls-cert", "CERT", "--tls-key", "CERT"]])
def test_an_address_that_others_reach_is_refused_without_tls_and_tokens(run_lull, listen, given):
    done = run_lull("serve", "--listen", listen, *given)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and "--tls-cert, --tls-key and --token-file are needed" in done.stderr


@pytest.mark.parametrize("listen", ["", "9836", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "example.org:80", "unix:", "unix:relative",
                                    "unix:/tmp/", "[127.0.0.1]:80", "::1:80", "256.0.0.1:80", f"unix:/{'x' * 200}"])
def test_what_is_no_address_is_refused_in_one_line(run_lull, listen):
    done = run_lull("serve", "--listen", listen)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "--listen" in done.stderr, done.stderr


@pytest.mark.parametrize("options", [["--every", "1ms"], ["--every", "2h"], ["--every", "soon"], ["--tls-cert", "x"], ["--tls-key", "x"],
                                     ["--tls-cert", "x", "--tls-key", "y"], ["--nonsense"], ["more"]])
def test_a_wrong_option_is_refused_in_one_line(run_lull, options):
    done = run_lull("serve", *options)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr


def test_without_the_program_that_is_said(lull, tmp_path):
    shutil.copy2(lull, tmp_path / "lull")
    done = subprocess.run([tmp_path / "lull", "serve"], capture_output=True, text=True, timeout=LIMIT, env=clean_environment())
    assert done.returncode == 125 and done.stderr.count("\n") == 1
    assert f"{tmp_path}/lull-serve is not installed" in done.stderr


def test_a_port_in_use_is_said(sim, serve):
    with sim(1) as gpus:
        first = serve(gpus, listen="127.0.0.1:0")
        second = gpus.start_lull("serve", "--listen", f"127.0.0.1:{first.port}")
        assert ended(second) == 125
        assert "Address already in use" in second.stderr.read()


def test_a_stale_socket_is_replaced_and_one_in_use_is_not(sim, serve, tmp_path):
    path = tmp_path / "serve.sock"
    with sim(1) as gpus:
        first = serve(gpus).up()
        second = gpus.start_lull("serve", "--listen", f"unix:{path}")
        assert ended(second) == 125
        assert "another lull serve listens there" in second.stderr.read()
        assert first.up().text("/metrics"), "the first one still serves"
        first.process.kill()
        first.process.wait()
        assert path.is_socket(), "left behind"
        third = serve(gpus).up()
        third.process.terminate()
        assert ended(third.process) == 0
        assert not path.exists(), "it goes with its server"


def test_what_is_no_socket_or_somebody_elses_is_left_alone(sim, tmp_path):
    path = tmp_path / "serve.sock"
    with sim(1) as gpus:
        path.write_text("precious")
        process = gpus.start_lull("serve", "--listen", f"unix:{path}")
        assert ended(process) == 125 and "is not a socket" in process.stderr.read()
        assert path.read_text() == "precious"
        path.unlink()
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(str(path))
        if os.geteuid() == 0:
            os.chown(path, 12345, 12345)
            process = gpus.start_lull("serve", "--listen", f"unix:{path}")
            assert ended(process) == 125 and "belongs to 12345" in process.stderr.read()
            assert path.is_socket()
        path.unlink()
        process = gpus.start_lull("serve", "--listen", f"unix:{tmp_path}/none/serve.sock")
        assert ended(process) == 125 and "No such file or directory" in process.stderr.read()


@pytest.mark.parametrize("kind", ["socket", "listening", "file", "folder", "link", "lock"])
def test_who_sits_on_roots_place_is_replaced(sim, serve, tmp_path, kind):
    """/run/lull is for everybody, as /tmp is."""
    if os.geteuid() != 0:
        pytest.skip("only root has such a place")
    tmp_path.chmod(0o1777)
    path = tmp_path / "serve.sock"
    squatter = socket.socket(socket.AF_UNIX)
    lock = None
    if kind in ("socket", "listening"):
        squatter.bind(str(path))
        if kind == "listening":
            squatter.listen()
    elif kind == "file":
        path.write_text("mine")
    elif kind == "folder":
        (path / "full").mkdir(parents=True)
    elif kind == "link":
        path.symlink_to("/etc/passwd")
    else:
        lock = os.open(tmp_path, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
    if lock is None:
        os.chown(path, 12345, 12345, follow_symlinks=False)
    with sim(1) as gpus, squatter:
        served = serve(gpus, listen=f"unix:{path}").up()
        assert served.metrics()["lull_up"] == 1 and path.stat().st_uid == 0 and path.stat().st_mode & 0o777 == 0o666
        served.process.terminate()
        assert ended(served.process) == 0 and not path.exists()
    if lock is not None:
        os.close(lock)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_with_status_0_and_nothing_is_left(sim, serve, number):
    with sim(1) as gpus:
        served = serve(gpus).up()
        stream = served.connect()
        stream.sendall(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert stream.recv(1 << 16).startswith(b"HTTP/1.1 200")
        served.process.send_signal(number)
        assert ended(served.process) == 0
        while stream.recv(1 << 16):
            pass
        stream.close()
        wait_until(lambda: not processes_of(gpus.folder, "lull-sensor"), what="the end of the sensor")


# -- who may ask, and what --------------------------------------------------------------------------
def test_only_get_and_head_of_what_is_there(sim, serve):
    with sim(1) as gpus:
        served = serve(gpus, listen="127.0.0.1:0").up()
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "BREW"):
            status, head, _ = served.get("/metrics", method=method)
            assert status == 405 and "Allow: GET, HEAD" in head
        status, head, body = served.get("/metrics", method="HEAD")
        assert status == 200 and body == "" and int(re.search(r"Content-Length: (\d+)", head)[1]) > 100
        for path in ("/nonsense", "/metrics/", "/../etc/passwd", "/%2e%2e/etc/passwd", "/api/", "/api/statuses", "//metrics"):
            assert served.get(path)[0] == 404, path
        assert served.get("/metrics?x=1")[0] == 200


def test_another_sites_name_is_refused(sim, serve):
    """A page elsewhere may have its own name point to 127.0.0.1 and read what comes."""
    with sim(1) as gpus:
        served = serve(gpus, listen="127.0.0.1:0").up()
        for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "localhost:x", "[::1"):
            assert served.get("/metrics", Host=host)[0] == 421, host
        for host in ("localhost", "LOCALHOST:80", "127.0.0.1", f"127.0.0.1:{served.port}", "[::1]:80", "10.0.0.7:9836"):
            assert served.get("/metrics", Host=host)[0] == 200, host


def test_every_answer_keeps_others_out(sim, serve):
    with sim(1) as gpus:
        served = serve(gpus).up()
        for path in ("/metrics", "/api/status", "/nonsense"):
            head = served.get(path)[1]
            assert "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'" in head
            for line in ("X-Content-Type-Options: nosniff", "Cache-Control: no-store", "Referrer-Policy: no-referrer"):
                assert line in head
            assert "Access-Control" not in head


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificate")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
                    "/CN=localhost", "-keyout", folder / "key.pem", "-out", folder / "cert.pem"], check=True, capture_output=True)
    return folder


@pytest.fixture
def tokens(tmp_path):
    path = tmp_path / "tokens"
    path.write_text(f"# of Prometheus\n{TOKEN}\n\nanother-token-for-somebody\n")
    path.chmod(0o600)
    return path


def test_tls_and_a_token_for_an_address_that_others_reach(sim, serve, certificate, tokens):
    with sim(1) as gpus:
        served = serve(gpus, "--tls-cert", certificate / "cert.pem", "--tls-key", certificate / "key.pem", "--token-file", tokens,
                       listen="0.0.0.0:0")
        basic = base64.b64encode(f"anybody:{TOKEN}".encode()).decode()
        for right in (f"Bearer {TOKEN}", f"bearer {TOKEN}", f"Basic {basic}", "Bearer another-token-for-somebody"):
            assert served.get("/metrics", Authorization=right, Host="gpu.example.org")[0] == 200, right
        wrong = base64.b64encode(b"anybody:wrong").decode()
        for value in ("", "Bearer", "Bearer ", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}x", f"Basic {wrong}", "Basic !", f"Digest {TOKEN}",
                      TOKEN):
            status, head, body = served.get("/metrics", Authorization=value)
            assert status == 401 and "WWW-Authenticate: Basic" in head and "lull_" not in body, value
        assert served.get("/api/events", Authorization="Bearer wrong")[0] == 401
        served.tls = False
        assert b"lull_" not in served.raw(f"GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())


@pytest.mark.parametrize("text, mode, said", [("short\n", 0o600, "at least 16 characters"), ("", 0o600, "no token"),
                                              (TOKEN, 0o644, "chmod 600"), (f"two words{TOKEN}", 0o600, "there is no user 'two'"), (f"root {TOKEN} {TOKEN}", 0o600, "one word"), (None, 0, "No such file")])
def test_a_token_file_that_protects_nothing_is_refused(sim, tmp_path, text, mode, said):
    path = tmp_path / "tokens"
    if text is not None:
        path.write_text(text)
        path.chmod(mode)
    with sim(1) as gpus:
        process = gpus.start_lull("serve", "--listen", "127.0.0.1:0", "--token-file", path)
        assert ended(process) == 125
        text = process.stderr.read()
        assert said in text and text.count("\n") == 1, text


def test_a_wrong_certificate_is_said(sim, tmp_path, tokens):
    (tmp_path / "pem").write_text("nonsense")
    with sim(1) as gpus:
        process = gpus.start_lull("serve", "--listen", "0.0.0.0:0", "--token-file", tokens, "--tls-cert", tmp_path / "pem", "--tls-key",
                                  tmp_path / "pem")
        assert ended(process) == 125
        assert process.stderr.read() == "lull: serve: TLS cannot be served with this certificate and key\n"


# -- metrics ----------------------------------------------------------------------------------------
def gpu_labels(text, gpu):
    return re.search(rf'^lull_gpu_info{{(gpu="{gpu}",uuid="[^"]*")', text, re.M)[1]


def test_metrics_have_what_is_learned_of_a_card(sim, serve):
    with sim(1) as gpus:
        uuid = json.loads(gpus.lull("status", "--json").stdout)["gpus"][0]["uuid"]
        (gpus.folder / "learned").mkdir(mode=0o700)
        file = gpus.folder / "learned" / uuid
        file.write_text(f"lull-learned 1\nuuid {uuid}\nidle_watts 5\nseconds 7200\nstride 1\nwindow 100 105\nend\n")
        file.chmod(0o600)
        gpus.load(0, 80)
        served = serve(gpus).up()
        label = gpu_labels(served.text("/metrics"), 0)
        values = wait_until(lambda: (m := served.metrics()).get(f"lull_gpu_effort_ratio{{{label}}}") and m, what="effort")
        watts, used = values[f"lull_gpu_power_watts{{{label}}}"], values[f"lull_gpu_utilization_ratio{{{label}}}"]
        assert values[f"lull_gpu_effort_ratio{{{label}}}"] == pytest.approx((watts - 5) / (used * 100), rel=0.1)
        assert values[f"lull_gpu_learned_seconds{{{label}}}"] == 7200 and values[f"lull_gpu_idle_power_watts{{{label}}}"] == 5


def test_metrics_are_those_of_the_gpus_and_promtool_is_content(sim, serve):
    with sim(2) as gpus:
        gpus.set(1, util=0)
        job = gpus.load(0, 80, "8GiB")
        served = serve(gpus).up()
        text = wait_until(lambda: (t := served.text("/metrics")) and "lull_gpu_job_info{" in t and "lull_gpu_seen_seconds_total{" in t and t)
        checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=LIMIT)
        assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
        values = metrics_of(text)
        first, second = gpu_labels(text, 0), gpu_labels(text, 1)
        status = json.loads(gpus.lull("status", "--json").stdout)["gpus"]
        assert values["lull_up"] == 1
        assert values[f"lull_gpu_memory_total_bytes{{{first}}}"] == status[0]["mem_total_bytes"]
        assert values[f"lull_gpu_memory_used_bytes{{{first}}}"] >= 8 << 30
        assert values[f"lull_gpu_processes{{{first}}}"] == 1 and values[f"lull_gpu_processes{{{second}}}"] == 0
        assert values[f"lull_gpu_power_limit_watts{{{first}}}"] == status[0]["power_limit_watts"]
        assert 0 <= values[f"lull_gpu_utilization_ratio{{{first}}}"] <= 1
        wait_until(lambda: served.metrics()[f"lull_gpu_utilization_ratio{{{first}}}"] > 0.7, what="the load")
        assert served.metrics()[f"lull_gpu_idle_seconds{{{first}}}"] == 0
        wait_until(lambda: served.metrics()[f"lull_gpu_idle_seconds{{{second}}}"] > 0.2, what="idleness")
        assert values[f"lull_gpu_up{{{first}}}"] == 1
        who = [line for line in values if line.startswith(f"lull_gpu_job_info{{{first}")]
        assert who == [f'lull_gpu_job_info{{{first},job_id="",user="{getpass.getuser()}"}}'], "a pid is no lasting name"
        assert str(job.pid) not in re.sub(r"^#.*", "", text, flags=re.M)
        assert "DCGM" not in text
        # About as many series a GPU as can be paid for.
        assert sum(first in line for line in values) <= 18


def test_counters_of_busy_and_seen_seconds_grow_with_what_was_seen(sim, serve):
    with sim(1) as gpus:
        gpus.set(0, util=50)
        served = serve(gpus).up()
        label = gpu_labels(served.text("/metrics"), 0)
        names = [f"lull_gpu_{name}_seconds_total{{{label}}}" for name in ("busy", "seen")]
        before = wait_until(lambda: (m := served.metrics()) and names[1] in m and m[names[0]] > 0 and m, what="the counters")
        after = wait_until(lambda: (m := served.metrics()) and m[names[1]] > before[names[1]] + 1 and m, what="more time")
        busy, seen = (after[name] - before[name] for name in names)
        assert 0.4 < busy / seen < 0.6
        gpus.fault(0, "lost")
        lost = wait_until(lambda: (m := served.metrics()) and m.get(f"lull_gpu_up{{{label}}}") == 0 and m, what="the loss")
        later = wait_until(lambda: (m := served.metrics()) and m["lull_samples_total"] > lost["lull_samples_total"] + 5 and m, what="samples")
        assert [later[name] for name in names] == [lost[name] for name in names], "nothing was seen meanwhile"


def test_what_is_unknown_is_no_sample(sim, serve):
    with sim(2) as gpus:
        gpus.fault(0, "lost")
        gpus.fault(1, "unsupported", function="nvmlDeviceGetTemperature*")
        served = serve(gpus).up()
        text = served.text("/metrics")
        first, second = gpu_labels(text, 0), gpu_labels(text, 1)
        values = metrics_of(text)
        known = {line.split("{")[0] for line in values if first in line}
        assert known <= {"lull_gpu_info", "lull_gpu_up", "lull_gpu_leases"} and values[f"lull_gpu_up{{{first}}}"] == 0
        assert f"lull_gpu_temperature_celsius{{{second}}}" not in values
        assert f"lull_gpu_power_watts{{{second}}}" in values


def test_without_a_driver_it_is_down_and_says_nothing_else(sim, serve):
    with sim(1) as gpus:
        gpus.fault("all", "no-driver")
        served = serve(gpus)
        assert served.metrics() == {"lull_up": 0}
        status, _, body = served.get("/api/status")
        assert status == 503 and "error" in json.loads(body)
        gpus.clear()
        served.up()
        assert served.get("/api/status")[0] == 200


def test_a_stuck_driver_is_down_within_three_intervals(sim, serve):
    """What it saw last is not served as what is."""
    with sim(2) as gpus:
        served = serve(gpus, every="1s").up()
        gpus.fault("all", "hang=1000s")
        began = time.monotonic()
        wait_until(lambda: served.metrics() == {"lull_up": 0}, what="that nothing is served")
        assert time.monotonic() - began < 3 + 4  # and some seconds for a machine that has other things to do
        assert served.get("/api/status")[0] == 503
        again = time.monotonic() + 3
        wait_until(lambda: served.metrics() != {"lull_up": 0} or time.monotonic() > again, what="some more intervals")
        assert served.metrics() == {"lull_up": 0}, "it stays so"
        gpus.clear()
        served.up()


def test_a_stopped_sensor_is_replaced_and_what_it_saw_is_not_served_for_long(sim, serve):
    with sim(1) as gpus:
        served = serve(gpus, every="1s").up()
        (sensor,) = processes_of(gpus.folder, "lull-sensor")
        os.kill(sensor, signal.SIGSTOP)
        last = served.metrics()["lull_samples_total"]
        began = time.monotonic()
        # Nothing, or a new sample of another sensor.
        wait_until(lambda: served.metrics().get("lull_samples_total", last + 1) > last, what="the end of what was seen")
        assert time.monotonic() - began < 3 + 4
        served.up()
        assert served.metrics()["lull_samples_total"] > last
        assert sensor not in processes_of(gpus.folder, "lull-sensor")


def test_a_hostile_name_stays_one_label(sim, serve):
    """Names of GPUs and processes come from outside."""
    name = 'A "GPU" \\ with\\nall } of {it'
    with sim(text=f'[[gpu]]\nmodel = "A100"\nname = {json.dumps(name)}\n') as gpus:
        text = serve(gpus).up().text("/metrics")
        checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=LIMIT)
        assert checked.returncode == 0, checked.stderr
        assert sum(line.startswith("lull_gpu_info{") for line in text.splitlines()) == 1


def test_dcgm_names_beside_our_own(sim, serve):
    with sim(1) as gpus:
        gpus.set(0, util=40, mem_used="2GiB")
        served = serve(gpus, "--dcgm-names").up()
        text = wait_until(lambda: (t := served.text("/metrics")) and "DCGM_FI_DEV_GPU_UTIL{" in t and t, what="the names")
        values = {line.split("{")[0]: value for line, value in metrics_of(text).items()}
        assert 30 < values["DCGM_FI_DEV_GPU_UTIL"] < 50 and values["DCGM_FI_DEV_FB_USED"] >= 2048
        assert re.search(r'DCGM_FI_DEV_GPU_TEMP\{gpu="0",UUID="GPU-[^"]*",pci_bus_id="[^"]+",device="nvidia0",modelName="[^"]+",Hostname="[^"]+"\}', text)
        assert "lull_gpu_utilization_ratio{" in text


# -- JSON -------------------------------------------------------------------------------------------
def shape(value):
    """Names of members all the way down, without what they hold."""
    if isinstance(value, dict):
        return {name: shape(one) for name, one in value.items() if name != "unknown"}
    if isinstance(value, list):
        return [shape(value[0])] if value and isinstance(value[0], (dict, list)) else []
    return None


def test_json_has_the_fields_of_the_commands(sim, serve):
    with sim(2) as gpus:
        job = gpus.load(0, 80, "1GiB")
        holder = gpus.start_lull("pick", "--gpus", "1", "--", "sleep", "1000")
        wait_until(lambda: json.loads(gpus.lull("leases", "--json").stdout)["leases"], what="the lease")
        served = serve(gpus).up()
        command = json.loads(gpus.lull("status", "--json").stdout)
        status = served.json("/api/status")
        assert shape(status) == shape(command)
        assert [g["uuid"] for g in status["gpus"]] == [g["uuid"] for g in command["gpus"]]
        assert [p["pid"] for p in status["gpus"][0]["processes"]] == [job.pid]
        leases = served.json("/api/leases")
        assert shape(leases) == shape(json.loads(gpus.lull("leases", "--json").stdout))
        assert leases["leases"][0]["pid"] == holder.pid
        jobs, commands = served.json("/api/jobs"), json.loads(gpus.lull("jobs", "--json").stdout)
        assert shape(jobs) == shape(commands)
        assert [[one["job"], one["users"], one["pids"], one["nodes"], one["command"], one["processes"], one["watched"]]
                for one in jobs["jobs"]] == \
            [[one["job"], one["users"], one["pids"], one["nodes"], one["command"], one["processes"], one["watched"]]
             for one in commands["jobs"]]
        assert jobs["jobs"][0]["pids"] == [job.pid] and re.fullmatch(r"tree:\d+", jobs["jobs"][0]["job"])
        recent = served.json("/api/recent")
        assert recent["slice_seconds"] == 20 and recent["slices"] == 180 and len(recent["gpus"]) == 2
        holder.terminate()


@pytest.fixture
def alone(sim):
    """A simulation whose watchers nobody else asks."""
    with tempfile.TemporaryDirectory(prefix="lull-c-") as place:
        os.chmod(place, 0o755)

        def start(count):
            gpus = sim(count)
            gpus.env["LULL_CONTROL"] = place
            return gpus
        yield start


def watch_job(gpus, *options, rule="util < 1 for 1h"):
    watcher = gpus.start_lull("watch", "--per", "job", "--step", f"{rule}: end", "--every", "200ms", *options)
    read_until(watcher.stderr, "watching each job")
    wait_until(lambda: any(job["watched"] for job in json.loads(gpus.lull("jobs", "--json").stdout)["jobs"]), what="a job")
    return watcher


def test_jobs_say_what_is_done_next_and_until_when_they_are_kept(alone, serve):
    with alone(1) as gpus:
        job = gpus.load(0, 0, "1GiB")
        served = serve(gpus).up()
        (one,) = served.json("/api/jobs")["jobs"]
        assert one["watched"] is False and one["next_action"] is None and one["dry_run"] is None
        watch_job(gpus)

        def row(event):
            return event["jobs"][0] if event["up"] and event["jobs"] and event["jobs"][0]["watched"] else None

        one = wait_until(lambda: (rows := served.json("/api/jobs")["jobs"]) and rows[0]["next_in_seconds"] and rows[0],
                         what="what the watcher says")
        assert one["next_action"] == "end" and 0 < one["next_in_seconds"] <= 3600 and one["kept_until"] is None
        assert gpus.lull("keep", str(job.pid), "2h").returncode == 0
        one = wait_until(lambda: (rows := served.json("/api/jobs")["jobs"]) and rows[0]["kept_until"] and rows[0],
                         what="the time it is kept")
        command = json.loads(gpus.lull("jobs", "--json").stdout)["jobs"][0]
        assert abs(calendar_seconds(one["kept_until"]) - calendar_seconds(command["kept_until"])) < 5
        wait_until(lambda: (found := row(first_event(served))) and found["kept_until"], what="an event that says so")


def calendar_seconds(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def first_event(served):
    with served.connect() as one:
        one.sendall(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        stream = one.makefile("rb")
        while not (line := stream.readline()).startswith(b"data: "):
            assert line, "the stream has ended"
        return json.loads(line[6:])


def test_a_silent_watcher_delays_no_sample_and_no_answer(alone, serve):
    with alone(1) as gpus:
        gpus.load(0, 0, "1GiB")
        watcher = watch_job(gpus)
        served = serve(gpus, every="500ms").up()

        def is_watched():
            status, _, body = served.get("/api/jobs")
            return json.loads(body)["jobs"][0]["watched"] if status == 200 else None

        wait_until(lambda: is_watched() is True, what="the watcher's word")
        watcher.send_signal(signal.SIGSTOP)
        wait_until(lambda: is_watched() is False, what="no word of the watcher")
        began, before = time.monotonic(), served.metrics()["lull_samples_total"]
        wait_until(lambda: served.metrics().get("lull_samples_total", 0) >= before + 6, what="samples")
        assert time.monotonic() - began < 30, "samples come while the watcher is waited for"


def test_events_say_who_waits_for_a_gpu(sim, serve):
    with sim(1) as gpus:
        holder = gpus.start_lull("pick", "--", "sleep", "1000")
        wait_until(lambda: json.loads(gpus.lull("leases", "--json").stdout)["leases"], what="the lease")
        waiter = gpus.start_lull("pick", "--wait", "--", "sleep", "1000")
        wait_until(lambda: json.loads(gpus.lull("leases", "--json").stdout)["queue"], what="the queue")
        served = serve(gpus).up()
        (ticket,) = first_event(served)["queue"]
        assert ticket["pid"] == waiter.pid and ticket["count"] == 1 and ticket["since"]
        assert served.json("/api/leases")["queue"] == [ticket]
        for one in (waiter, holder):
            one.terminate()


# -- keep -------------------------------------------------------------------------------------------
JSON = {"Content-Type": "application/json"}


def keep(served, target="", seconds=7200, body=None, **headers):
    body = json.dumps({"target": target, "seconds": seconds}) if body is None else body
    lines = ["POST /api/keep HTTP/1.1", "Connection: close", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in {"Host": "localhost", **JSON, **headers}.items()]
    head, _, text = served.raw(("\r\n".join(lines) + "\r\n\r\n" + body).encode()).partition(b"\r\n\r\n")
    return int(head.split()[1]), text.decode()


def test_keep_is_refused_unless_it_is_allowed(alone, serve):
    with alone(1) as gpus:
        gpus.load(0, 0, "1GiB")
        watch_job(gpus)
        served = serve(gpus).up()
        assert keep(served)[0] == 405 and first_event(served)["keep"] is False
        assert json.loads(gpus.lull("jobs", "--json").stdout)["jobs"][0]["kept_until"] is None


def test_who_asks_over_the_socket_keeps_their_own(alone, serve):
    with alone(1) as gpus:
        job = gpus.load(0, 0, "1GiB")
        watch_job(gpus)
        served = serve(gpus, "--allow-keep").up()
        assert first_event(served)["keep"] is True
        name = json.loads(gpus.lull("jobs", "--json").stdout)["jobs"][0]["job"]
        status, text = keep(served, name)
        assert status == 200 and json.loads(text)["kept"] is True, text
        assert keep(served, str(job.pid))[0] == 200
        assert json.loads(gpus.lull("jobs", "--json").stdout)["jobs"][0]["kept_until"]
        status, text = keep(served, "tree:1")
        assert status == 404 and json.loads(text)["kept"] is False


@pytest.mark.parametrize("headers", [
    {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": "http://localhost.evil.example"},
    {"Origin": "https://localhost:81"}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"},
    {"Content-Type": "text/plain"}, {"Content-Type": "application/x-www-form-urlencoded"}, {"Content-Type": ""},
])
def test_a_page_of_another_site_keeps_nothing(alone, serve, headers):
    with alone(1) as gpus:
        gpus.load(0, 0, "1GiB")
        watch_job(gpus)
        served = serve(gpus, "--allow-keep").up()
        assert keep(served, **headers)[0] == 403
        assert json.loads(gpus.lull("jobs", "--json").stdout)["jobs"][0]["kept_until"] is None
        assert keep(served, Origin="http://localhost", **{"Sec-Fetch-Site": "same-origin"})[0] == 200


def test_who_cannot_be_told_keeps_nothing(alone, serve):
    with alone(1) as gpus:
        gpus.load(0, 0, "1GiB")
        watch_job(gpus)
        for listen, headers in (("127.0.0.1:0", {}), (None, {"X-Forwarded-For": "10.0.0.1"})):
            served = serve(gpus, "--allow-keep", listen=listen).up()
            status, text = keep(served, **headers)
            assert status == 403 and "unknown user" in text
            served.process.terminate()
            ended(served.process)


@pytest.mark.parametrize("body, status", [
    ("", 400), ("{}", 400), ("[]", 400), ('{"seconds": -1}', 400), ('{"seconds": 0}', 400), ('{"seconds": 1e99}', 400),
    ('{"target": "x"}', 400), ('{"seconds": 60, "user": "root"}', 400), ('{"seconds": 60} x', 400),
    ('{"target": "\u0000", "seconds": 60}', 400), ('{"target": "' + "x" * 300 + '", "seconds": 60}', 400),
    ("x" * 4096, 413),
])
def test_what_is_no_wish_is_refused(alone, serve, body, status):
    with alone(1) as gpus:
        served = serve(gpus, "--allow-keep").up()
        assert keep(served, body=body)[0] == status
        assert served.up()


def test_a_token_of_a_user_asks_in_that_users_name(alone, serve, tmp_path):
    """Root's server asks for whoever the token is; the watcher decides by that."""
    if os.geteuid() != 0:
        pytest.skip("only root can ask for others")
    file = tmp_path / "users"
    file.write_text(f"nobody {TOKEN}1\nroot {TOKEN}2\n{TOKEN}3\n")
    file.chmod(0o600)
    with alone(1) as gpus:
        job = gpus.load(0, 0, "1GiB")  # root's
        watch_job(gpus)
        served = serve(gpus, "--allow-keep", "--token-file", file, listen="127.0.0.1:0")
        wait_until(lambda: served.get("/metrics", Authorization=f"Bearer {TOKEN}1")[0] == 200, what="an answer")
        def ask(number):
            return keep(served, str(job.pid), Authorization=f"Bearer {TOKEN}{number}")
        assert keep(served, str(job.pid))[0] == 401
        status, text = ask(1)
        assert status == 403 and "only its owner and root may keep" in text
        status, text = ask(3)
        assert status == 403 and "unknown user" in text
        assert json.loads(gpus.lull("jobs", "--json").stdout)["jobs"][0]["kept_until"] is None
        assert ask(2)[0] == 200


def test_only_root_asks_in_anothers_name(alone):
    """What lull-serve says to a watcher is believed from root alone."""
    if os.geteuid() != 0:
        pytest.skip("only root can be somebody else")
    with alone(1) as gpus:
        job = gpus.load(0, 0, "1GiB")
        watch_job(gpus)
        (place,) = [path for path in pathlib.Path(gpus.env["LULL_CONTROL"]).glob("lull-keep-*/keep.*")]

        def ask(user):
            answer = subprocess.run(
                [sys.executable, "-c", "import os, socket, sys\n"
                 "os.setuid(int(sys.argv[1]))\n"
                 "with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one:\n"
                 "    one.connect(sys.argv[2]); one.send(sys.argv[3].encode()); print(one.recv(4096).decode())",
                 str(user), place, f"for 0 7200 {job.pid}"], capture_output=True, text=True, timeout=LIMIT)
            assert answer.returncode == 0, answer.stderr
            return answer.stdout

        assert ask(65534).startswith("refused: only root may ask in another's name")
        assert ask(0).startswith("kept")


def test_events_bring_each_sample_and_say_when_none_comes(sim, serve):
    with sim(1) as gpus:
        served = serve(gpus).up()
        with served.connect() as one:
            one.sendall(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            stream = one.makefile("rb")

            def event():
                while not (line := stream.readline()).startswith(b"data: "):
                    assert line, "the stream has ended"
                return json.loads(line[6:])

            first, second = event(), event()
            assert first["up"] and second["status"]["time"] > first["status"]["time"]
            assert first["summary"].startswith("1 GPU") and first["uses"] == ["free"]
            gpus.fault("all", "no-driver")
            while event()["up"]:
                pass
            gpus.clear()
            while not event()["up"]:
                pass

