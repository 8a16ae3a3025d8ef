"""Signals of the user's own: files, commands and metrics endpoints in rules. Stand-in servers answer in the format of
vLLM, Triton, TGI and Jupyter, and in every way that a server can be broken. The recipes are those of docs/signals.md."""
import datetime
import http.server
import json
import os
import re
import socket
import socketserver
import subprocess
import threading

import pytest

from conftest import ROOT, LIMIT, alive, clean_environment, end, read_until, wait_for_samples, wait_until

NEVER = "util < 1 and queue < 1 for 9h"


# ---- stand-ins ------------------------------------------------------------------------------------

class Server:
    """A stand-in for a server. `answer(path)` makes the body; `mode` breaks it."""

    def __init__(self, answer, content="text/plain; version=0.0.4; charset=utf-8", unix=None):
        self.answer, self.mode, self.asked = answer, "well", 0
        outer = self
        self.over = threading.Event()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def address_string(self):
                return "-"

            def log_message(self, *_):
                pass

            def do_GET(self):
                outer.asked += 1
                mode = outer.mode
                if mode == "hang":
                    outer.over.wait(LIMIT)
                    return
                if mode == "garbage":
                    self.wfile.write(b"\x00\xff\xfe nonsense " * 100)
                    self.close_connection = True
                    return
                if mode == "redirect":
                    self.send_response(302)
                    self.send_header("Location", f"http://127.0.0.1:{outer.port}/elsewhere")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                if mode == "drip":  # a byte now and then, for ever
                    self.send_response(200)
                    self.end_headers()
                    try:
                        while not outer.over.wait(0.01):
                            self.wfile.write(b"#")
                    except OSError:
                        pass
                    self.close_connection = True
                    return
                body = outer.answer(self.path).encode()
                if mode == "page":
                    body = b"<html><body>It works!</body></html>\n"
                self.send_response(503 if mode == "503" else 200)
                self.send_header("Content-Type", content)
                if mode == "endless":
                    self.end_headers()
                    try:
                        while not outer.over.is_set():
                            self.wfile.write(b"# more and more\n" * 4096)
                    except OSError:
                        pass
                    self.close_connection = True
                    return
                if mode == "chunked":
                    self.send_header("Transfer-Encoding", "chunked")
                    self.end_headers()
                    for i in range(0, len(body), 100):
                        piece = body[i:i + 100]
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                    self.wfile.write(b"0\r\n\r\n")
                    return
                self.send_header("Content-Length", str(len(body) + (10 if mode == "cut" else 0)))
                self.end_headers()
                self.wfile.write(body)
                self.close_connection = mode == "cut"

        class Tcp(socketserver.ThreadingMixIn, http.server.HTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass

        class Unix(Tcp):
            address_family = socket.AF_UNIX

            def server_bind(self):
                socketserver.TCPServer.server_bind(self)
                self.server_name, self.server_port = "local", 0

            def get_request(self):
                connection, _ = self.socket.accept()
                return connection, ("-", 0)

        self.server = Unix(str(unix), Handler) if unix else Tcp(("127.0.0.1", 0), Handler)
        self.port = 0 if unix else self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def close(self):
        self.over.set()
        self.server.shutdown()
        self.server.server_close()

    def table(self, metric, more=""):
        return f'{{ url = "http://127.0.0.1:{self.port}/metrics", metric = "{metric}"{more} }}'

    def wait_for_asks(self, count):
        wanted = self.asked + count
        wait_until(lambda: self.asked >= wanted, what="questions to the server")


@pytest.fixture
def serving():
    """Starts stand-ins, and ends them with the test."""
    all_of_them = []

    def start(*args, **kwargs):
        all_of_them.append(Server(*args, **kwargs))
        return all_of_them[-1]

    yield start
    for one in all_of_them:
        one.close()


class Vllm:
    """Counts as vLLM's prometheus_client does."""
    def __init__(self):
        self.running, self.waiting, self.done, self.started = 0, 0, 5, 1.7e9

    def __call__(self, _):
        labels = 'engine="0",model_name="meta-llama/Llama-3.1-8B-Instruct"'
        return (
            "# HELP process_start_time_seconds Start time of the process since unix epoch in seconds.\n"
            f"# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds {self.started}\n"
            "# HELP vllm:num_requests_running Number of requests in model execution batches.\n"
            f"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{{{labels}}} {self.running}.0\n"
            "# HELP vllm:num_requests_waiting Number of requests waiting to be processed.\n"
            f"# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{{{labels}}} {self.waiting}.0\n"
            "# HELP vllm:request_success_total Count of successfully processed requests.\n"
            "# TYPE vllm:request_success_total counter\n"
            f'vllm:request_success_total{{engine="0",finished_reason="stop",model_name="m"}} {self.done}.0\n'
            f'vllm:request_success_total{{engine="0",finished_reason="length",model_name="m"}} 2.0\n'
            "# HELP vllm:request_success_created Count of successfully processed requests.\n"
            "# TYPE vllm:request_success_created gauge\n"
            f'vllm:request_success_created{{engine="0",finished_reason="stop",model_name="m"}} {self.started}\n')


class Triton:
    def __init__(self):
        self.pending, self.done = 0, 0

    def __call__(self, _):
        return (
            "# HELP nv_inference_request_success Number of successful inference requests, all batch sizes\n"
            "# TYPE nv_inference_request_success counter\n"
            f'nv_inference_request_success{{model="bert",version="1"}} {self.done}\n'
            'nv_inference_request_success{model="resnet50",version="1"} 0\n'
            "# HELP nv_inference_pending_request_count Instantaneous number of pending requests awaiting execution per-model.\n"
            "# TYPE nv_inference_pending_request_count gauge\n"
            f'nv_inference_pending_request_count{{model="bert",version="1"}} {self.pending}\n'
            'nv_inference_pending_request_count{model="resnet50",version="1"} 0\n'
            '# HELP nv_gpu_utilization GPU utilization rate [0.0 - 1.0)\n# TYPE nv_gpu_utilization gauge\n'
            'nv_gpu_utilization{gpu_uuid="GPU-1"} 0\n')


class Tgi:
    def __init__(self):
        self.queue, self.batch, self.done = 0, 0, 1

    def __call__(self, _):
        return (
            f"# TYPE tgi_request_count counter\ntgi_request_count {self.done}\n\n"
            f"# TYPE tgi_queue_size gauge\ntgi_queue_size {self.queue}\n\n"
            f"# TYPE tgi_batch_current_size gauge\ntgi_batch_current_size {self.batch}\n\n"
            '# TYPE tgi_batch_next_size histogram\ntgi_batch_next_size_bucket{le="+Inf"} 4\n'
            "tgi_batch_next_size_sum 4\ntgi_batch_next_size_count 4\n")


class Jupyter:
    def __init__(self):
        self.state, self.ago = "busy", 0

    def __call__(self, path):
        then = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=self.ago)
        time = then.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        if path == "/api/status":
            return json.dumps({"connections": 0, "kernels": 1, "last_activity": time, "started": time})
        assert path == "/api/kernels"
        return json.dumps([{"id": "45b29d0c-3a72-416b-a964-7a04f0c637ef", "name": "python3", "last_activity": time,
                            "execution_state": self.state, "connections": 1}])


def recipe(heading, port, span="1500ms"):
    """The table of docs/signals.md for this server, at its port, with a rule that does not take 20 minutes."""
    text = (ROOT / "docs/signals.md").read_text().split(f"\n## {heading}\n")[1].split("```toml\n")[1].split("```")[0]
    assert re.search(r"127\.0\.0\.1:\d+", text) and re.search(r"for \d+m", text)
    return re.sub(r"for \d+m", f"for {span}", re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{port}", text))


@pytest.fixture
def settings(tmp_path):
    def write(text):
        file = tmp_path / "lull.toml"
        file.write_text(text)
        file.chmod(0o600)
        return {"LULL_CONFIG": str(file)}
    return write


def finishes(watch, status=7):
    """It ends by itself, with what it said."""
    out, err = watch.communicate(timeout=LIMIT)
    assert watch.returncode == status, out + err
    return err


# ---- recipes --------------------------------------------------------------------------------------

@pytest.mark.parametrize("name,make,busy", [
    ("vLLM", Vllm, {"running": 3}), ("vLLM", Vllm, {"waiting": 1}), ("vLLM", Vllm, {"done": None}),
    ("Triton", Triton, {"pending": 2}), ("Triton", Triton, {"done": None}),
    ("Text Generation Inference", Tgi, {"queue": 1}), ("Text Generation Inference", Tgi, {"batch": 4}),
    ("Text Generation Inference", Tgi, {"done": None}),
])
def test_recipe_keeps_a_server_that_serves_and_ends_one_that_waits(sim, serving, settings, name, make, busy):
    model = make()
    works = threading.Event()
    works.set()

    def answer(path):
        for key, value in busy.items():
            if value is None and works.is_set():
                setattr(model, key, getattr(model, key) + 1)
            elif value is not None:
                setattr(model, key, value if works.is_set() else 0)
        return model(path)

    server = serving(answer)
    env = settings(recipe(name, server.port))
    rule = name.lower().split()[0].replace("text", "tgi") + "-idle"
    with sim(1) as gpus:
        watch = gpus.start_lull("watch", "--every", "100ms", "--idle", rule, "--do", "exit=7", env=env)
        server.wait_for_asks(9)  # more than the time of the rule
        assert watch.poll() is None
        works.clear()
        finishes(watch)


def test_recipe_for_jupyter_goes_by_the_last_activity_of_a_kernel(sim, serving, settings, tmp_path):
    kernel = Jupyter()
    server = serving(kernel, content="application/json")
    token = tmp_path / "token"
    token.write_text("secret\n")
    text = recipe("Jupyter", server.port, "200ms").replace("/etc/lull/jupyter-idle", str(ROOT / "examples/jupyter-idle"))
    env = settings(text.replace("/etc/lull/jupyter-token", str(token)).replace(" }", ', timeout = "20s" }'))
    with sim(1) as gpus:
        busy = gpus.lull("check", "jupyter-idle", "--json", env=env)
        assert json.loads(busy.stdout)["signals"][1]["value"] == 0, busy.stderr
        assert json.loads(busy.stdout)["now"] is False
        kernel.state = "idle"
        assert json.loads(gpus.lull("check", "jupyter-idle", "--json", env=env).stdout)["now"] is False
        kernel.ago = 3 * 3600
        done = gpus.lull("watch", "--every", "100ms", "--idle", "jupyter-idle", "--do", "exit=7", env=env)
        assert done.returncode == 7, done.stderr


# ---- servers that are broken ----------------------------------------------------------------------

@pytest.mark.parametrize("mode,reason", [
    ("hang", "no answer within 500ms"), ("garbage", "the answer is not HTTP"),
    ("page", "line 1 of the answer is not Prometheus' text format"), ("endless", "the answer has more than 4.0 MiB"),
    ("cut", "the answer is cut short"), ("503", "it answers 503"), ("redirect", "it answers 302 Found"),
    ("drip", "no answer within 500ms")])
def test_server_that_is_broken_makes_the_signal_unknown_and_delays_no_sample(sim, serving, tmp_path, mode, reason):
    server = serving(lambda _: "queue 0\n")
    server.mode = mode
    log = tmp_path / "log"
    # A sample is 50 ms; what reads up to 4 MiB gets more time.
    timeout = "500ms" if mode in ("hang", "drip") else "20s"
    with sim(1) as gpus:
        watch = gpus.start_lull("watch", "--every", "50ms", "--idle", "util < 1 and queue < 1 for 1s", "--do", "exit=7",
                                "--signal-from", "queue=" + server.table("queue", f', timeout = "{timeout}"'),
                                env={"LULL_SIM_LOG": str(log)})
        said = read_until(watch.stderr, "signal queue is unknown: ")
        assert reason in said
        wait_for_samples(log, 30)
        assert watch.poll() is None
        server.mode = "well"
        server.over.set()
        assert "signal queue is known again" in finishes(watch)


def test_file_that_hangs_in_the_kernel_is_read_by_one_process_at_most(sim):
    with sim(1) as gpus:
        done = gpus.lull("sim", "fault", 0, "hang=dstate", "--function", "nvmlDeviceGetSerial")  # which nobody calls
        if done.returncode:
            pytest.skip(done.stderr.strip())
        file = gpus.folder / "dstate/0"  # a read of it does not end, and its size is the number of readers
        watch = gpus.start_lull("watch", "--every", "100ms", "--idle", "util < 1 and queue < 1 for 1h", "--do", "exit=7",
                                "--signal-from", f'queue={{ file = "{file}", timeout = "100ms" }}')
        try:
            read_until(watch.stderr, "it hangs in the kernel")
            assert file.stat().st_size == 1
        finally:
            gpus.clear()
        # It has ended then, and is read again.
        assert "hangs in the kernel" not in read_until(watch.stderr, "signal queue is unknown: ")


def test_nobody_who_listens_is_unknown(sim):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        table = f'queue={{ url = "http://127.0.0.1:{free.getsockname()[1]}/metrics", metric = "queue" }}'
        with sim(1) as gpus:
            checked = gpus.lull("check", "util < 1 and queue < 1 for 1m", "--signal-from", table)
            assert "unknown: http://127.0.0.1" in checked.stdout.replace("\n", " ") and "cannot be judged" in checked.stdout


def test_counter_that_begins_anew_is_unknown_once_and_never_idle(sim, serving):
    model = Vllm()
    model.done = 100
    server = serving(model)
    with sim(1) as gpus:
        watch = gpus.start_lull("watch", "--every", "100ms", "--idle", "util < 1 and requests < 1000 for 9h", "--do", "exit=7",
                                "--signal-from",
                                "requests=" + server.table("vllm:request_success_total", ', as = "rate"'))
        server.wait_for_asks(3)
        model.done, model.started = 0, 1.8e9
        assert "the counter began anew" in read_until(watch.stderr, "signal requests is unknown")
        read_until(watch.stderr, "signal requests is known again")
        end(watch)


def test_endpoint_that_repeats_an_old_time_is_stale(sim, serving):
    old = int((datetime.datetime.now().timestamp() - 300) * 1000)
    server = serving(lambda _: f"queue 0 {old}\n")
    with sim(1) as gpus:
        checked = gpus.lull("check", "queue < 1 for 1m", "--json", "--signal-from", "queue=" + server.table("queue"))
        one = json.loads(checked.stdout)["signals"][0]
        assert one["readable"] is False and "max_age is 1m" in one["unknown"]
        assert json.loads(checked.stdout)["now"] is None


def test_chunks_labels_and_unix_sockets_are_understood(sim, serving, tmp_path):
    body = 'queue{model="a"} 3\nqueue{model="b"} 4\n'
    tcp, unix = serving(lambda _: body), serving(lambda _: body, unix=tmp_path / "sock")
    tcp.mode = "chunked"

    def value(table):
        checked = gpus.lull("check", "queue < 1 for 1m", "--json", "--signal-from", f"queue={table}")
        return json.loads(checked.stdout)["signals"][0]["value"]
    with sim(1) as gpus:
        assert value(tcp.table("queue")) == 7
        assert value(tcp.table("queue", ', labels = { model = "b" }')) == 4
        assert value(f'{{ url = "http://local/metrics", metric = "queue", socket = "{tmp_path}/sock" }}') == 7


# ---- files and commands ---------------------------------------------------------------------------

def test_file_that_nobody_writes_any_more_is_unknown(sim, tmp_path):
    queue = tmp_path / "queue"
    queue.write_text("0\n")
    os.utime(queue, (1, 1))
    with sim(1) as gpus:
        watch = gpus.start_lull("watch", "--every", "100ms", "--idle", "util < 1 and queue < 1 for 1s", "--do", "exit=7",
                                "--signal-from", f"queue=file:{queue}")
        assert "was written" in read_until(watch.stderr, "signal queue is unknown")
        assert watch.poll() is None
        queue.write_text("0\n")
        finishes(watch)


@pytest.mark.parametrize("command,reason", [
    ("echo none", "is not one number"), ("true", "is empty"), ("echo 1; exit 3", "status 3"),
    ("yes", "command yes prints more than a number"), ("sleep 100", "no answer within 500ms")])
def test_command_that_gives_no_number_is_unknown_and_leaves_nothing_behind(sim, command, reason):
    with sim(1) as gpus:
        table = f'queue={{ command = "{command}", timeout = "500ms" }}' if "sleep" in command else f"queue=command:{command}"
        watch = gpus.start_lull("watch", "--every", "100ms", "--idle", NEVER, "--do", "exit=7", "--signal-from", table)
        assert reason in read_until(watch.stderr, "signal queue is unknown")
        children = lambda: os.popen(f"pgrep -P {watch.pid} -x '{command.split()[0]}'").read().split()  # noqa: E731
        wait_until(lambda: not children(), what="the end of the command")
        assert watch.poll() is None


def test_command_that_forks_leaves_nothing_behind(sim, tmp_path):
    """It is run again and again: daemons of it would pile up."""
    pids = tmp_path / "pids"
    (tmp_path / "command").write_text(f"#!/bin/sh\nsleep 1000 &\necho $! >> {pids}\n"
                                      f"setsid sh -c 'echo $$ >> {pids}; exec sleep 1000' >/dev/null &\n"
                                      f"while [ $(wc -l < {pids}) -lt 2 ]; do sleep 0.01; done\necho 0\n")
    with sim(1) as gpus:
        done = gpus.lull("check", "--signal-from", f"q=command:sh {tmp_path / 'command'}", "q < 1 for 1s")
        assert "the condition holds" in done.stdout, done
        for pid in pids.read_text().split():
            wait_until(lambda: not alive(int(pid)), what="the end of what the command left")


def test_what_fired_is_confirmed_by_a_new_reading(sim, tmp_path):
    """The second answer, which only a confirmation asks for so soon, says that there is work."""
    asked = tmp_path / "asked"
    asked.write_text("")
    command = f"echo x >>{asked}; test $(wc -l <{asked}) = 2 && echo 5 || echo 0"
    with sim(1) as gpus:
        watch = gpus.start_lull("watch", "--every", "100ms", "--idle", "util < 1 and queue < 1 for 1s", "--do", "exit=7",
                                "--signal-from", f"queue=command:{command}")
        err = finishes(watch)
        assert "not confirmed" in err and len(asked.read_text().splitlines()) >= 4


# ---- commands -------------------------------------------------------------------------------------

def test_run_ends_its_job_by_it_and_records_it(sim, tmp_path, serving):
    server = serving(lambda _: "queue 0.5\n")
    trace = tmp_path / "job.csv"
    with sim(1) as gpus:
        done = gpus.lull("run", "--every", "100ms", "--delay", "0s", "--idle", "util < 1 and queue < 1 for 1s", "--record", trace,
                         "--signal-from", "queue=" + server.table("queue"), "--signal-from", "other=command:echo 4", "--",
                         gpus.binary, "sim", "load", "--gpu", "0", "--util", "0")
        assert done.returncode != 0 and "queue" in done.stderr, done.stderr
    rows = trace.read_text().splitlines()
    names = rows[0].split(",")
    assert "signal_queue" in names and "signal_other" in names
    assert rows[-1].split(",")[names.index("signal_queue")] == "0.5"
    assert rows[-1].split(",")[names.index("signal_other")] == "4"


def test_record_and_replay_know_it(sim, run_lull, tmp_path):
    queue, trace = tmp_path / "queue", tmp_path / "t.csv"
    queue.write_text("3\n")
    with sim(1) as gpus:
        record = gpus.start_lull("record", "--every", "100ms", "-o", trace, "--signal-from",
                                 f'queue={{ file = "{queue}", max_age = "1h" }}')
        wait_until(lambda: trace.exists() and "3" in [row.split(",")[-7] for row in trace.read_text().splitlines()[1:]
                                                      if row.count(",") > 7], what="a row with the value")
        record.terminate()
        record.wait(timeout=LIMIT)
    assert "signal_queue" in trace.read_text().splitlines()[0]
    # By hand, so that the times are known: ten idle minutes, in the second half of which there is work in the queue.
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
    with open(trace, "w") as file:
        print("time,gpu,uuid,util_percent,mem_used_bytes,signal_queue", file=file)
        for i in range(600):
            at = (start + datetime.timedelta(seconds=i)).strftime("%Y-%m-%dT%H:%M:%SZ")
            print(f"{at},0,GPU-1,0,8000000000,{0 if i < 300 else 2}", file=file)

    def fired(rule, *more):
        done = run_lull("replay", trace, "--idle", rule, "--signal-from", "queue", "--json", *more)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["totals"]["ended"], done.stderr
    assert fired("util < 1 and queue < 1 for 4m")[0] == 1
    assert fired("util < 1 and queue < 1 for 6m")[0] == 0
    lacks = run_lull("replay", trace, "--idle", "util < 1 and requests < 1 for 1m", "--signal-from", "requests", "--json")
    assert lacks.returncode == 0 and json.loads(lacks.stdout)["totals"]["ended"] == 0
    assert lacks.stderr.count("the trace has no signal_requests") == 1
    assert fired("util < 1 and queue < 1 for 4m", "--columns", "queue=signal_queue")[0] == 1


def test_per_and_fill_use_it(sim, tmp_path):
    queue, log = tmp_path / "queue", tmp_path / "log"
    table = f'queue={{ file = "{queue}", max_age = "1h" }}'
    queue.write_text("5\n")
    with sim(2) as gpus:
        watch = gpus.start_lull("watch", "--per", "gpu", "--every", "100ms", "--idle", "util < 1 and queue < 1 for 500ms",
                                "--do", f"exec=echo x >>{log}", "--signal-from", table)
        fill = gpus.start_lull("fill", "--every", "100ms", "--idle", "util < 5 and queue < 1 for 200ms", "--user-idle", "0",
                               "--signal-from", table, "-v", "--", "sh", "-c", "echo filled; exec sleep 100")
        read_until(fill.stderr, "queue")
        assert not log.exists()
        queue.write_text("0\n")
        read_until(fill.stdout, "filled")
        wait_until(log.exists, what="the action")
        assert watch.poll() is None


def test_rule_without_a_source_is_unknown_for_that_reason(sim):
    with sim(1) as gpus:
        done = gpus.lull("check", "queue < 1 for 1m")
        assert done.returncode == 2 and "there is no signal 'queue'" in done.stderr and "[signals]" in done.stderr


# ---- mistakes and settings ------------------------------------------------------------------------

@pytest.mark.parametrize("command", [["watch", "--do", "exit"], ["run", "--", "true"], ["check", "util < 1"], ["record"],
                                     ["fill", "--", "true"], ["replay", "/dev/null"]])
@pytest.mark.parametrize("source,said", [
    ("util=file:/tmp/x", "'util' is a signal that lull has"),
    ('q={ url = "https://a/metrics", metric = "m" }', "https is not spoken here"),
    ("q=nonsense", "file:PATH, command:CMD"), ("q=command:", "command is empty"),
])
def test_mistake_is_one_clear_line(run_lull, command, source, said):
    words = [command[0], "--signal-from", source, *command[1:]]
    done = run_lull(*words)
    assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_mistake_in_the_settings_names_its_place(run_lull, settings):
    env = settings('[signals]\nqueue = { fiel = "/a" }\n')
    done = run_lull("config", env=clean_environment(**env))
    assert done.returncode == 2 and f"{env['LULL_CONFIG']}:2:" in done.stderr and "did you mean 'file'" in done.stderr
    done = run_lull("config", env=clean_environment(**settings('[signals]\npower = { file = "/a" }\n')))
    assert done.returncode == 2 and "'power' is a signal that lull has" in done.stderr


def test_config_lists_signals_with_their_place(run_lull, settings):
    env = settings('[signals]\nqueue = { file = "/run/queue", as = "rate" }\n[rules]\nmine = "queue < 1 for 1h"\n')
    done = run_lull("config", env=clean_environment(**env))
    assert re.search(r"signals\.queue +file /run/queue as rate +.*lull\.toml:2:", done.stdout), done.stdout + done.stderr
    listed = json.loads(run_lull("config", "--json", env=clean_environment(**env)).stdout)["signals"]
    assert listed[0]["name"] == "queue"


def test_settings_that_others_can_write_give_nobody_a_command(run_lull, settings, tmp_path):
    mark = tmp_path / "ran"
    env = settings(f'[signals]\nqueue = {{ command = "touch {mark}; echo 0" }}\n')
    os.chmod(env["LULL_CONFIG"], 0o666)
    done = run_lull("check", "queue < 1 for 1m", env=clean_environment(**env))
    assert done.returncode == 2 and "can be written by everybody" in done.stderr and not mark.exists()
    if os.geteuid() == 0:
        os.chmod(env["LULL_CONFIG"], 0o600)
        os.chown(env["LULL_CONFIG"], 12345, 12345)
        done = run_lull("check", "queue < 1 for 1m", env=clean_environment(**env))
        assert done.returncode == 2 and not mark.exists()
