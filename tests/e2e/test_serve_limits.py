"""The limits of `lull serve` on connections, sizes and time, on simulated GPUs."""
import contextlib
import json
import os
import pathlib
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time

import pytest

from conftest import LIMIT, descriptors, wait_until
from test_serve import TOKEN, alone, certificate, keep, serve, tokens, watch_job  # noqa: F401
from test_serve_history import UTC, made, write_days

NOBODY = 65534


@pytest.mark.parametrize("request_text", [b"nonsense\r\n\r\n", b"\0\0\0\0\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET\r\n\r\n", b"\r\n" * 40000,
                                          b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n",
                                          b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 50_000 + b"\r\n",
                                          b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000000\r\n\r\n" + b"x" * 5_000_000,
                                          b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000000\r\n\r\n" + b"x" * 100_000,
                                          b"GET /metrics HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"],
                         ids=["words", "zeros", "version", "short", "lines", "path", "headers", "body", "post", "length", "tls"])
def test_a_malformed_request_is_refused_and_costs_nothing(sim, serve, request_text):  # noqa: F811
    with sim(1) as gpus:
        served = serve(gpus).up()
        with served.connect() as one:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                one.sendall(request_text)
                one.shutdown(socket.SHUT_WR)
                answer = one.recv(1 << 16)
                assert not answer or b" 40" in answer[:20] or b" 41" in answer[:20] or b" 43" in answer[:20] or b" 505" in answer[:20], answer
        assert served.get("/metrics")[0] == 200
        resident = int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{served.process.pid}/status").read_text())[1])
        assert resident < 64 << 10


def test_who_is_slow_keeps_nobody_from_an_answer(sim, serve):  # noqa: F811
    """Connections that say nothing, or never take an answer."""
    with sim(1) as gpus:
        served = serve(gpus).up()
        silent = [served.connect() for _ in range(60)]
        for number, one in enumerate(silent):
            if number % 2:
                one.sendall(b"GET /metrics HTTP/1.1\r\nHost: loc")
        assert served.get("/metrics")[0] == 200
        for one in silent:
            one.close()
        assert served.get("/metrics")[0] == 200


def test_64_listen_to_events_and_no_more(sim, serve):  # noqa: F811
    with sim(1) as gpus, contextlib.ExitStack() as open_ones:
        served = serve(gpus).up()

        def listen():
            one = open_ones.enter_context(served.connect())
            one.sendall(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return one, one.recv(12)

        streams = [listen() for _ in range(64)]
        assert all(answer == b"HTTP/1.1 200" for _, answer in streams)
        assert listen()[1] == b"HTTP/1.1 503"
        streams[0][0].close()
        wait_until(lambda: listen()[1] == b"HTTP/1.1 200", what="a place", every=0.2)
        assert served.up()


def test_256_connections_are_open_and_no_more(sim, serve):  # noqa: F811
    with sim(1) as gpus, contextlib.ExitStack() as open_ones:
        served = serve(gpus, listen="127.0.0.1:0").up()
        crowd = [open_ones.enter_context(served.connect()) for _ in range(256)]
        wait_until(lambda: len(descriptors(served.process.pid)) >= 256, what="256 connections")
        late = open_ones.enter_context(served.connect())
        late.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        late.settimeout(2)
        with pytest.raises(TimeoutError):
            late.recv(1)
        assert len(descriptors(served.process.pid)) < 256 + 40
        for one in crowd[:8]:
            one.close()
        late.settimeout(LIMIT)
        assert late.recv(12) == b"HTTP/1.1 200", "its turn comes"


def test_32_connections_come_from_one_other_address(sim, serve, certificate, tokens):  # noqa: F811
    with sim(1) as gpus, contextlib.ExitStack() as open_ones:
        served = serve(gpus, "--token-file", tokens, "--tls-cert", certificate / "cert.pem", "--tls-key", certificate / "key.pem",
                       listen="0.0.0.0:0")
        crowd = [open_ones.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=LIMIT)) for _ in range(32)]
        wait_until(lambda: len(descriptors(served.process.pid)) >= 32, what="32 connections")
        late = open_ones.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=LIMIT))
        assert late.recv(1) == b"", "closed at once"
        crowd[0].close()

        def answered():
            with contextlib.suppress(OSError):
                return served.get("/metrics", Authorization=f"Bearer {TOKEN}")[0] == 200
        wait_until(answered, what="a place", every=0.2)


def test_a_request_that_takes_longer_than_30_seconds_is_cut_off(sim, serve):  # noqa: F811
    """A byte each second is no silence, and no request either."""
    with sim(1) as gpus:
        served = serve(gpus).up()
        began = time.monotonic()
        with served.connect() as slow, pytest.raises((BrokenPipeError, ConnectionResetError, EOFError)):
            slow.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
            while time.monotonic() - began < LIMIT + 30:
                slow.sendall(b"x")
                slow.settimeout(1)
                with contextlib.suppress(TimeoutError):
                    if slow.recv(1 << 12) == b"":
                        raise EOFError
        assert 25 < time.monotonic() - began < LIMIT


def closed_after(began, one):
    """Seconds until the server has closed a connection, of which nothing is read."""
    poller = select.poll()
    poller.register(one, select.POLLRDHUP)
    assert poller.poll(LIMIT * 1000), "it is open for ever"
    return time.monotonic() - began


def test_10_seconds_of_silence_close_a_connection(sim, serve):  # noqa: F811
    with sim(1) as gpus, contextlib.ExitStack() as open_ones:
        served = serve(gpus).up()
        silent, half, done, listening = (open_ones.enter_context(served.connect()) for _ in range(4))
        half.sendall(b"GET /metrics HTTP/1.1\r\nHost: loc")
        done.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        listening.sendall(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert done.recv(12) == b"HTTP/1.1 200"
        began = time.monotonic()
        for one in (silent, half, done):
            assert 8 < closed_after(began, one) < 25
        listening.setblocking(False)
        with pytest.raises(BlockingIOError):  # who takes events is open, and has taken them all
            while listening.recv(1 << 16):
                pass


def test_an_answer_that_is_taken_for_longer_than_30_seconds_is_cut_off(sim, serve, tmp_path):  # noqa: F811
    """Some of it each second is no silence. What is left is more than the kernel keeps for the reader."""
    folder = write_days(tmp_path / "history", days=28, gpus=192, every=3600)
    with sim(1) as gpus:
        served = serve(gpus, "--history", folder, env=UTC)
        assert made(served, "/api/history")[0] == 200
        slow, never = served.connect(), served.connect()
        with slow, never:
            for one in (slow, never):
                one.sendall(b"GET /api/history HTTP/1.1\r\nHost: localhost\r\n\r\n")
            began = time.monotonic()
            text = slow.recv(4096)
            length = int(re.search(rb"Content-Length: (\d+)", text)[1])
            taken, poller = len(text), select.poll()
            poller.register(slow, select.POLLRDHUP)
            while not poller.poll(500):
                taken += len(slow.recv(1 << 14))
                assert time.monotonic() - began < LIMIT, "it is open for ever"
            assert time.monotonic() - began > 25
            while more := slow.recv(1 << 16):
                taken += len(more)
            assert taken < length, "it was large enough"
            assert closed_after(began, never) < LIMIT
        assert served.up()


CROWD = """import socket, sys, time
def connect():
    one = socket.socket(socket.AF_UNIX)
    one.settimeout(60)
    one.connect(sys.argv[1])
    return one
def ask(one):
    one.sendall(b"GET /metrics HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
    return one.recv(12)
crowd = [connect() for _ in range(32)]
assert all(ask(one) == b"HTTP/1.1 200" for one in crowd)
assert connect().recv(1) == b"", "closed at once"
print("full", flush=True)
sys.stdin.readline()
crowd.pop().close()
for _ in range(600):
    try:
        if ask(connect()) == b"HTTP/1.1 200":
            break
    except OSError:
        pass
    time.sleep(0.1)
else:
    raise SystemExit("there is no place")
"""


def test_32_connections_are_one_other_users(sim, serve):  # noqa: F811
    if os.geteuid() != 0:
        pytest.skip("only root can be somebody else")
    with sim(1) as gpus, tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        served = serve(gpus, listen=f"unix:{place}/serve.sock").up()
        crowd = subprocess.Popen([sys.executable, "-c", CROWD, served.path], user=NOBODY, group=NOBODY, extra_groups=[], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            assert crowd.stdout.readline() == "full\n", crowd.stderr.read()
            assert served.up(), "others still ask"
            _, said = crowd.communicate("go on\n", timeout=LIMIT)
            assert crowd.returncode == 0, said
        finally:
            crowd.kill()
            crowd.communicate()


# -- keep -------------------------------------------------------------------------------------------
def test_16_ask_for_time_at_once_and_no_more(alone, serve):  # noqa: F811
    with alone(1) as gpus, contextlib.ExitStack() as open_ones:
        gpus.load(0, 0, "1GiB")
        watcher = watch_job(gpus)
        served = serve(gpus, "--allow-keep").up()
        watcher.send_signal(signal.SIGSTOP)
        body = b'{"seconds": 7200}'
        crowd = [open_ones.enter_context(served.connect()) for _ in range(20)]
        for one in crowd:
            one.sendall(b"POST /api/keep HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
                        b"Content-Length: %d\r\n\r\n" % len(body) + body)
        answers = [b"".join(iter(lambda one=one: one.recv(1 << 16), b"")) for one in crowd]
        refused = [answer for answer in answers if answer.startswith(b"HTTP/1.1 503")]
        assert len(refused) == 4 and all(b"too many ask at once" in answer for answer in refused), answers
        watcher.send_signal(signal.SIGCONT)
        wait_until(lambda: keep(served)[0] == 200, what="the watcher's answer")


def test_another_users_server_asks_for_that_user_alone(alone, serve):  # noqa: F811
    if os.geteuid() != 0:
        pytest.skip("only root can be somebody else")
    with alone(1) as gpus, tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        file = pathlib.Path(place, "tokens")
        file.write_text(f"root {TOKEN}1\nnobody {TOKEN}2\n")
        file.chmod(0o600)
        os.chown(file, NOBODY, NOBODY)
        served = serve(gpus, "--allow-keep", "--token-file", file, listen="127.0.0.1:0", user=NOBODY, group=NOBODY, extra_groups=[])
        status, text = keep(served, Authorization=f"Bearer {TOKEN}1")
        assert status == 403 and "this lull serve is nobody's, and asks for nobody else" in text
        status, text = keep(served, Authorization=f"Bearer {TOKEN}2")
        assert status == 404 and json.loads(text)["kept"] is False
