"""Who may call off what a watcher is about to do, and how long asking takes."""
import os
import shutil
import socket
import subprocess
import time

import pytest
from conftest import LIMIT, let_others_in, read_until, wait_until
from test_watch import LOGIND, QUICK

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user")
PYTHON = "/usr/bin/python3"
SHOWN = "`lull watch --cancel` cancels it"


def as_user(uid):
    return {"user": uid, "group": uid, "extra_groups": []}


@pytest.fixture
def place(tmp_path_factory):
    """Where watchers of all users put their folders, as /tmp is."""
    made = subprocess.check_output(["mktemp", "-d"], text=True).strip()
    os.chmod(made, 0o1777)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def pending(sim, programs, place, tmp_path):
    """Starts watchers that are about to shut the machine down (a program that writes it down does)."""
    gpus = sim(1)
    gpus.folder.chmod(0o755)
    for path in gpus.folder.rglob("*"):
        if path.is_file():
            path.chmod(0o666)
    programs.add("busctl", LOGIND.format("yes"))
    gpus.env.update({"LULL_CONTROL": place, "LULL_DEV": place, "PATH": programs.path})

    def start(**who):
        watch = gpus.start_lull("watch", *QUICK, "--warn", "1h", "--do", "shutdown", **who)
        read_until(watch.stderr, SHOWN)
        return watch

    start.gpus = gpus
    # Users who are not root come through the folders of the test.
    let_others_in(tmp_path)
    (tmp_path / "calls").touch()
    (tmp_path / "calls").chmod(0o666)
    return start


def cancel(pending, **who):
    return pending.gpus.lull("watch", "--cancel", **who)


def sockets(place):
    """Those that somebody can be found by: a draft gets its name once somebody listens."""
    return [f"{folder}/{name}" for folder, _, names in os.walk(place) for name in names if not name.startswith(".")]


@ROOT_ONLY
def test_only_the_owner_and_root_cancel(pending, place):
    watch = pending(**as_user(12345))
    stranger = cancel(pending, **as_user(12346))
    assert stranger.returncode == 1 and "cancelled" not in stranger.stdout
    [where] = sockets(place)
    # Not even one who gets at the socket (its folder opened by mistake) may cancel.
    os.chmod(os.path.dirname(where), 0o755)
    os.chmod(where, 0o777)
    ask = f"import socket; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect('{where}'); print(s.recv(500))"
    asked = subprocess.run([PYTHON, "-c", ask], capture_output=True, text=True, timeout=LIMIT, **as_user(12346))
    assert "refused" in asked.stdout, asked
    os.chmod(os.path.dirname(where), 0o700)
    assert "cancelled: shutdown" in cancel(pending, **as_user(12345)).stdout
    read_until(watch.stderr, "cancelled by")
    second = pending(**as_user(12345))
    assert "cancelled: shutdown" in cancel(pending).stdout  # root
    read_until(second.stderr, "uid 0")


@ROOT_ONLY
def test_nobody_squats_on_a_name_or_answers_for_another(pending, place):
    squatted = f"{place}/lull-control-12345"
    listen = (f"import os, socket, sys\nos.umask(0)\nos.mkdir('{squatted}', 0o777)\n"
              "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
              f"s.bind('{squatted}/watch.77.0')\ns.listen(0)\nprint('ready', flush=True)\n"
              "c, _ = s.accept()\nc.send(b'cancelled: all is well')\nsys.stdin.read()\n")
    liar = subprocess.Popen([PYTHON, "-c", listen], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                            **as_user(12346))
    try:
        assert liar.stdout.readline() == "ready\n"
        watch = pending(**as_user(12345))
        answer = cancel(pending, **as_user(12345))
        assert answer.returncode == 0 and "all is well" not in answer.stdout and "cancelled: shutdown" in answer.stdout
        read_until(watch.stderr, "cancelled by")
    finally:
        liar.kill()
        liar.wait()
        liar.stdin.close()
        liar.stdout.close()


@ROOT_ONLY
def test_an_answer_of_another_user_is_not_believed(pending, place):
    folder = f"{place}/lull-control-12345"
    os.mkdir(folder, 0o700)
    os.chown(folder, 12345, 12345)
    # A socket that a stranger listens on, moved into the user's own folder.
    listen = ("import socket, sys\ns = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
              f"s.bind('{place}/lie')\ns.listen(1)\nprint('ready', flush=True)\n"
              "c, _ = s.accept()\nc.send(b'cancelled: all is well')\nsys.stdin.read()\n")
    liar = subprocess.Popen([PYTHON, "-c", listen], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                            **as_user(12346))
    try:
        assert liar.stdout.readline() == "ready\n"
        os.rename(f"{place}/lie", f"{folder}/watch.77.0")
        os.chown(f"{folder}/watch.77.0", 12345, 12345)
        answer = cancel(pending, **as_user(12345))
        assert answer.returncode == 1 and "not believed" in answer.stdout
    finally:
        liar.kill()
        liar.wait()
        liar.stdin.close()
        liar.stdout.close()


def test_a_full_backlog_holds_nobody_up(pending, place):
    watch = pending()
    folder = os.path.dirname(sockets(place)[0])
    deaf = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(8)]
    callers = []
    for number, one in enumerate(deaf):
        one.bind(f"{folder}/watch.{number + 2}.0")
        one.listen(0)
        while True:  # until nobody more gets in
            caller = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            caller.setblocking(False)
            callers.append(caller)
            try:
                caller.connect(f"{folder}/watch.{number + 2}.0")
            except BlockingIOError:
                break
    before = time.monotonic()
    answer = cancel(pending)
    assert time.monotonic() - before < 8  # one after the other would take 16 s
    for one in deaf + callers:
        one.close()
    assert answer.returncode == 0 and "cancelled: shutdown" in answer.stdout and answer.stdout.count("no answer") == 8
    read_until(watch.stderr, "cancelled by")


def test_no_socket_is_left_behind_or_lost(pending, place):
    killed = pending()
    killed.kill()
    killed.wait()
    assert len(sockets(place)) == 1
    watch = pending()
    [where] = wait_until(lambda: len(sockets(place)) == 1 and sockets(place), what="the old socket to go")
    other = pending()  # looks at the sockets that are there, and must not call anything off by it
    assert len(sockets(place)) == 2
    shutil.rmtree(os.path.dirname(where))  # as at a logout
    wait_until(lambda: len(sockets(place)) == 2, what="the watchers to be found again")
    answer = cancel(pending)
    assert answer.stdout.count("cancelled: shutdown") == 2, answer
    for one in (watch, other):
        one.terminate()
        one.wait(timeout=LIMIT)
    assert sockets(place) == []
    with open("/proc/net/unix") as listed:
        assert f"lull/watch/{watch.pid}" not in listed.read()
