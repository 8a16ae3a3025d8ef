"""Ctrl-C at a terminal ends the script as well: whoever a signal ends, or whose job it ended, dies of that
signal, as timeout(1) does. A shell goes on behind a program that exits with 130."""
import fcntl
import os
import pty
import re
import signal
import subprocess
import termios

import pytest

from conftest import LIMIT, end, wait_until
from terminals import read_all, read_until

NEVER = ["--idle", "util < 1 for 9h", "--every", "100ms"]
# The words of each command, and what it has said once it is there.
COMMANDS = {
    "run": (["lull", "run", *NEVER, "--", "sh", "-c", "echo there; exec sleep 1000"], b"there"),
    "watch": (["lull", "watch", *NEVER, "--do", "exit", "-v"], b"watching"),
    "watch --per": (["lull", "watch", "--per", "job", *NEVER, "--do", "end", "-v"], b"watching"),
    "pick --wait": (["lull", "pick", "--wait", "--", "true"], b"waiting"),
    "pick -- CMD": (["lull", "pick", "--gpus", "0", "--util", "any", "--procs", "any", "--", "sh", "-c", "echo there; exec sleep 1000"], b"there"),
    "fill": (["lull", "fill", "--idle", "util < 1 for 200ms", "--user-idle", "0", "--", "sh", "-c", "echo there; exec sleep 1000"], b"there"),
    "record": (["lull", "record", "--every", "100ms"], b"util_percent"),
    "status --watch": (["lull", "status", "--watch"], b"q leave"),
    "leases --watch": (["lull", "leases", "--watch"], b"q leave"),
    "jobs --watch": (["lull", "jobs", "--watch"], b"q leave"),
    "sim": (["lull", "sim", "--", "sh", "-c", "echo there; exec sleep 1000"], b"there"),
    "sim load": (["lull", "sim", "load", "--gpu", "1", "--util", "50"], None),
    "gpu_sentinel": (["gpu_sentinel", "--kill_duration", "600"], None),
    "gpu_idle_timeout": (["gpu_idle_timeout", "-n", "30000", "sh", "-c", "echo there; exec sleep 1000"], b"there"),
}


@pytest.fixture
def machine(sim, lull, tmp_path):
    """Two GPUs; all are leased for those who wait. The drop-ins are links as packages make them."""
    gpus = sim(2)
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for name in ("lull", "gpu_sentinel", "gpu_idle_timeout"):
        (bin_folder / name).symlink_to(lull)
    gpus.env["PATH"] = f"{bin_folder}:{gpus.env['PATH']}"
    return gpus


def script_on_terminal(gpus, words):
    """bash with a script on a terminal of its own: `WORDS; echo and on`."""
    leader, follower = pty.openpty()

    def own_terminal():
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = gpus.start("bash", "-c", '"$@"; echo and on $?', "bash", *words, stdin=follower, stdout=follower,
                         stderr=follower, text=False, preexec_fn=own_terminal,
                         env={"TERM": "xterm", "LC_ALL": "C.UTF-8"})
    os.close(follower)
    return process, leader


def is_there(gpus, process, words, leader, said):
    """It has said what it says once it is there, or listens for signals."""
    if said:
        return read_until(leader, b"", said)

    if "load" in words:
        return wait_until(lambda: gpus.show()["gpus"][1]["util_percent"] > 0, what="the load") and b""

    def caught():
        for line in os.popen(f"pgrep -P {process.pid}").read().split():
            with open(f"/proc/{line}/status") as status, open(f"/proc/{line}/comm") as comm:
                blocked = next(row for row in status.read().splitlines() if row.startswith("SigBlk"))
                if "bash" not in comm.read() and int(blocked.split()[1], 16) & (1 << (signal.SIGINT - 1)):
                    return True
        return False
    wait_until(caught, what="a listener for signals")
    return b""


@pytest.mark.parametrize("name", COMMANDS)
def test_ctrl_c_ends_the_script(machine, name):
    words, said = COMMANDS[name]
    holder = machine.start_lull("pick", "-n", "2", "--", "sleep", "1000") if name == "pick --wait" else None
    if holder:
        wait_until(lambda: len(machine.lull("leases", "--json").stdout.split('"gpu"')) > 2, what="the leases")
    process, leader = script_on_terminal(machine, words)
    try:
        text = is_there(machine, process, words, leader, said)
        os.write(leader, b"\x03")
        text += read_all(leader)
        assert process.wait(timeout=LIMIT) == -signal.SIGINT, text
        assert b"and on" not in text
    finally:
        end(process)
        os.close(leader)
        if holder:
            end(holder)


@pytest.mark.parametrize("name", ["run", "watch", "watch --per", "fill", "record", "sim", "gpu_idle_timeout"])
def test_a_script_in_the_background_sees_143(machine, name):
    words, said = COMMANDS[name]
    script = machine.start("bash", "-c", '"$@" & echo pid $!; wait $!; echo status=$?', "bash", *words,
                           stderr=subprocess.STDOUT)
    try:
        lines = ""  # the shell and the command write in any order
        while not (pid := re.search(r"^pid (\d+)$", lines, re.MULTILINE)) or said.decode() not in lines:
            lines += (line := script.stdout.readline())
            assert line, "it has ended"
        os.kill(int(pid[1]), signal.SIGTERM)
        assert script.communicate(timeout=LIMIT)[0].endswith("status=143\n")
    finally:
        end(script)
