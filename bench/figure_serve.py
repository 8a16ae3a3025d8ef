"""A scrape of `lull serve` on 8 simulated GPUs with a job on each: its time, and the rhythm of the sampler while many ask, and while
a month of 64 GPUs is read.

Each scrape is the first of its sample, so that its text is made for it. For a minute 200 connections ask for metrics, JSON and the
page in turn, and 32 listen to events. LULL_SECONDS makes it shorter.
"""
import os
import re
import shutil
import socket
import statistics
import subprocess
import tempfile
import threading
import time

from figures import BUILD, LULL, finish, report, simulation

SECONDS = int(os.environ.get("LULL_SECONDS", "60"))
CONNECTIONS = 200
LISTENERS = 32
PATHS = ["/metrics", "/api/status", "/api/jobs", "/api/leases", "/api/recent", "/", "/now.js"]


def scrape(path, what="/metrics"):
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(path)
        one.sendall(f"GET {what} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        text = b""
        while more := one.recv(1 << 16):
            text += more
    return text.decode()


def value(text, name):
    return float(re.search(rf"^{re.escape(name)} (\S+)$", text, re.M)[1])


def resident(pid):
    with open(f"/proc/{pid}/status") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1])


def late_samples(before, after):
    """How many samples came between two scrapes, and the share of them that were later than 50 ms."""
    count, late = ([value(one, name) for one in (before, after)] for name in
                   ("lull_sample_delay_seconds_count", 'lull_sample_delay_seconds_bucket{le="0.05"}'))
    samples = count[1] - count[0]
    return samples, 1 - (late[1] - late[0]) / samples


def readers(server, folder):
    """The most memory, in MiB, that each process has had in which the server reads this history."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline") as words, open(f"/proc/{name}/status") as status:
                if int(name) != server.pid and folder in words.read():
                    yield int(re.search(r"VmHWM:\s+(\d+)", status.read())[1]) / 1024
        except (OSError, TypeError):  # it has ended
            pass


def start(env, listen, *options):
    server = subprocess.Popen([LULL, "serve", "--listen", listen, "--every", "100ms", *options], env=env, stderr=subprocess.PIPE, text=True)
    return server, server.stderr.readline().split("serving on ")[1].strip()


holder, env = simulation(8)
folder = tempfile.mkdtemp()
loads = [subprocess.Popen([LULL, "sim", "load", "--gpu", str(gpu), "--util", "80", "--mem", "20GiB"], env=env, stdout=subprocess.DEVNULL)
         for gpu in range(8)]
try:
    path = f"{folder}/serve.sock"
    server, _ = start(env, f"unix:{path}")
    while scrape(path).count("lull_gpu_job_info{") < 8:
        time.sleep(0.05)
    times = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.connect(path)
        listener.sendall(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        stream = listener.makefile("rb")
        for _ in range(300):
            while not stream.readline().startswith(b"event: now"):  # a sample that nobody has asked for yet
                pass
            begin = time.perf_counter()
            scrape(path)
            times.append(time.perf_counter() - begin)
    median = statistics.median(times) * 1e3
    report("scrape of 8 GPUs with a job on each, connection and all", f"{median:.3f} ms", "under 1 ms", median < 1)
    server.terminate()
    assert server.wait() == 0
    server, address = start(env, "127.0.0.1:0")
    port = int(address.rpartition(":")[2])

    def text():
        return subprocess.run(["curl", "-s", f"http://127.0.0.1:{port}/metrics"], capture_output=True, text=True, check=True).stdout

    script = f"{folder}/paths.lua"
    with open(script, "w") as out:
        out.write("local at = 0\nlocal paths = {" + ", ".join(f'"{path}"' for path in PATHS) + "}\n"
                  "request = function() at = at % #paths + 1; return wrk.format('GET', paths[at]) end\n")

    def ask(seconds):
        return subprocess.run(["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "-s", script, f"http://127.0.0.1:{port}"],
                              check=True, capture_output=True, text=True).stdout

    events = []  # of each listener

    def listen():
        with socket.create_connection(("127.0.0.1", port)) as one:
            one.sendall(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            mine = [0]
            events.append(mine)
            while more := one.recv(1 << 16):
                mine[0] += more.count(b"event: now")

    for _ in range(LISTENERS):
        threading.Thread(target=listen, daemon=True).start()
    ask(2)
    before, memory, heard = text(), resident(server.pid), [one[0] for one in events]
    done = ask(SECONDS)
    after, grown = text(), resident(server.pid) - memory
    fewest = min(now[0] - then for now, then in zip(events, heard))
    samples, share = late_samples(before, after)
    rate = re.search(r"Requests/sec:\s+(\S+)", done)[1]
    assert len(events) == LISTENERS
    report("events that each listener got meanwhile", f"{fewest}", "at least one a second", fewest >= SECONDS)
    report(f"samples later than 50 ms while {CONNECTIONS} connections ask and {LISTENERS} listen", f"{100 * share:.2f} %", "at most 1 %", share <= 0.01,
           f"({samples:.0f} samples, {rate} requests a second)")
    report("samples that came", f"{samples / (10 * SECONDS):.3f}", "at least 0.95 of the grid", samples >= 9.5 * SECONDS)
    report("growth of memory meanwhile", f"{grown} KiB", "at most 1024 KiB", grown <= 1024)
    server.terminate()
    assert server.wait() == 0

    subprocess.run([os.path.join(BUILD, "history_bench"), folder, "30", "64", "30"], env={**os.environ, "TZ": "UTC"}, check=True)
    server, _ = start({**env, "TZ": "UTC"}, f"unix:{path}", "--history", folder)
    while "lull_up 1" not in scrape(path):
        time.sleep(0.05)
    before, began, most = scrape(path), time.monotonic(), 0.0
    for what in ("/api/history", "/api/policy"):
        while " 200 " not in (head := scrape(path, what).partition("\r\n")[0] + " "):
            assert " 202 " in head, head
            most = max([most, *readers(server, folder)])
            time.sleep(0.05)
    took = time.monotonic() - began
    samples, share = late_samples(before, scrape(path))
    report("samples later than 50 ms while a month of 64 GPUs is read", f"{100 * share:.2f} %", "at most 1 %", share <= 0.01,
           f"({samples:.0f} samples in {took:.1f} s)")
    report("peak memory of the process that reads it", f"{most:.0f} MiB", "at most 448 MiB", most <= 448)
    server.terminate()
    assert server.wait() == 0
finally:
    for load in loads:
        load.kill()
        load.wait()
    holder.stdin.close()
    holder.wait()
    shutil.rmtree(folder)
finish()
