"""`lull watch` on simulated GPUs: when it acts, what it does, and that it does it once.

Power, Determined and the like are programs in PATH: the tests put their own there.
"""
import http.server
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time

import pytest
from conftest import LIMIT, SUDO, alive, read_until, wait_for_samples, wait_until

QUICK = ["--every", "50ms", "--idle", "util < 1 for 500ms"]


# ---- when -----------------------------------------------------------------------------------------

def test_acts_once_and_ends(sim, tmp_path):
    with sim(2) as gpus:
        log = tmp_path / "log"
        done = gpus.lull("watch", *QUICK, "--do", f"exec=echo $LULL_RULE >> {log}", "--do", "exit=7")
        assert done.returncode == 7
        assert log.read_text() == "util < 1 for 500ms\n"
        assert "GPUs 0, 1" in done.stderr


def test_default_status_and_order(sim, tmp_path):
    with sim(1) as gpus:
        log = tmp_path / "log"
        done = gpus.lull("watch", *QUICK, *[x for i in range(3) for x in ("--do", f"exec=echo {i} >> {log}")])
        assert done.returncode == 0 and log.read_text() == "0\n1\n2\n"


def test_repeat_needs_a_new_streak(sim, tmp_path):
    with sim(1) as gpus:
        log = tmp_path / "log"
        asked = tmp_path / "asked"
        watch = gpus.start_lull("watch", *QUICK, "--repeat", "--do", f"exec=echo x >> {log}", env={"LULL_SIM_LOG": asked})
        read_until(watch.stderr, "watching again")
        wait_for_samples(asked, 25, "two windows")  # still idle is no new reason
        assert log.read_text() == "x\n"
        gpus.set(0, util=90)
        read_until(watch.stderr, "busy again")
        gpus.set(0, util=0)
        read_until(watch.stderr, "watching again")
        assert log.read_text() == "x\nx\n"
        watch.send_signal(signal.SIGTERM)
        assert watch.wait(timeout=LIMIT) == -signal.SIGTERM


def test_nothing_fires_before_it_is_armed(sim):
    with sim(1) as gpus:
        watch = gpus.start_lull("watch", *QUICK, "--arm", "util > 80 for 300ms", "--do", "exit=3", "-v")
        seen = ""
        while seen.count("GPU 0 util 0 %") < 30:  # three windows
            seen += watch.stderr.readline()
        assert watch.poll() is None and "armed:" not in seen
        gpus.set(0, util=95)
        read_until(watch.stderr, "armed: util > 80 for 300ms")
        gpus.set(0, util=0)
        assert watch.wait(timeout=LIMIT) == 3


def test_one_busy_gpu_of_four_keeps_it_up(sim):
    with sim(4) as gpus:
        gpus.set(2, util=95)
        watch = gpus.start_lull("watch", "-v", "--every", "50ms", "--idle", "util < 70 for 300ms", "--do", "exit")
        for _ in range(40):
            watch.stderr.readline()
        assert watch.poll() is None
        gpus.set(2, util=10)
        assert watch.wait(timeout=LIMIT) == 0


@pytest.mark.parametrize("fault", ["lost", "no-util"])
def test_survives_a_gpu_that_cannot_be_read(sim, fault):
    with sim(2) as gpus:
        gpus.fault(1, fault)
        watch = gpus.start_lull("watch", "-v", *QUICK, "--do", "exit")
        seen = read_until(watch.stderr, "cannot be judged")
        assert "GPU 1" in seen
        for _ in range(40):
            assert "cannot be judged while" not in watch.stderr.readline()
        assert watch.poll() is None
        gpus.clear()
        assert watch.wait(timeout=LIMIT) == 0


def test_keeps_what_is_armed_through_a_driver_reload(sim):
    with sim(1) as gpus:
        gpus.set(0, util=95)
        watch = gpus.start_lull("watch", *QUICK, "--arm", "util > 80 for 300ms", "--do", "exit")
        read_until(watch.stderr, "armed:")
        gpus.fault("all", "no-driver")
        read_until(watch.stderr, "no GPU can be read")
        gpus.set(0, util=0)
        gpus.clear("all")
        assert watch.wait(timeout=LIMIT) == 0


def test_missing_ignored_on_request(sim):
    with sim(2) as gpus:
        gpus.fault(1, "no-util")
        assert gpus.lull("watch", *QUICK, "--missing", "ignore", "--do", "exit=5").returncode == 5


def next_word(watch):
    """The next line without its time; that this machine let nobody look for a while is a change as well."""
    while "no sample for" in (line := watch.stderr.readline()):
        pass
    return line.split(" ", 2)[-1]


def test_log_has_one_line_a_change(sim, tmp_path):
    with sim(1) as gpus:
        gpus.set(0, util=90)
        log = tmp_path / "log"
        watch = gpus.start_lull("watch", "--every", "250ms", "--idle", "util < 1 for 1h", "--do", "exit",
                                env={"LULL_SIM_LOG": log})
        assert "watching" in watch.stderr.readline()
        wait_for_samples(log, 3)
        gpus.set(0, util=0)
        assert next_word(watch).startswith("lull: idle:")
        wait_for_samples(log, 3)
        gpus.set(0, util=90)
        assert next_word(watch).startswith("lull: busy again after")
        watch.terminate()
        assert watch.wait(timeout=LIMIT) == -signal.SIGTERM
        assert next_word(watch) == ""


def test_live_line_on_a_terminal(sim):
    with sim(1) as gpus:
        master, slave = pty.openpty()
        watch = gpus.start_lull("watch", "--every", "50ms", "--idle", "util < 1 for 1h", "--do", "exit", stderr=slave)
        os.close(slave)
        seen = ""
        end = time.monotonic() + LIMIT
        while "idle" not in seen or "on GPU 0" not in seen:
            assert time.monotonic() < end, seen
            if select.select([master], [], [], 1)[0]:
                seen += os.read(master, 4096).decode()
        line = r"\r\x1b\[Kidle \d+s of 1h, exit in (1h|\d+m) \(lull watch --cancel\) \| util 0 % on GPU 0"
        assert re.search(line, seen), seen
        assert re.search(r"\d\d:\d\d:\d\d lull: watching", seen), seen
        watch.terminate()
        watch.wait(timeout=LIMIT)
        os.close(master)


# ---- what -----------------------------------------------------------------------------------------

TREE = ("import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "for _ in range(2):\n"
        "    if os.fork() == 0: os.setsid() if _ else None; break\n"
        "open(sys.argv[1], 'a').write(f'{os.getpid()}\\n')\n"
        "time.sleep(1000)\n")


def start_tree(gpus, tmp_path, **kwargs):
    log = tmp_path / "pids"
    job = gpus.start(sys.executable, "-c", TREE, log, **kwargs)
    pids = wait_until(lambda: len(log.read_text().split()) >= 3 and log.read_text().split() if log.exists() else None)
    return job, [int(p) for p in pids]


def test_kill_a_process_with_its_tree(sim, tmp_path):
    with sim(1) as gpus:
        job, pids = start_tree(gpus, tmp_path)
        done = gpus.lull("watch", *QUICK, "--grace", "100ms", "--do", f"kill={job.pid}")
        assert done.returncode == 0, done.stderr
        assert job.wait(timeout=LIMIT) == -signal.SIGKILL
        assert f"kill={job.pid}: SIGTERM to its process tree, SIGKILL to what is left after 100ms" in done.stderr
        assert "still there after 100ms: SIGKILL to 3 processes" in done.stderr
        assert "all its processes are gone" in done.stderr
        assert [p for p in pids if alive(p)] == []


def test_kill_a_process_group(sim, tmp_path):
    with sim(1) as gpus:
        job, pids = start_tree(gpus, tmp_path, start_new_session=True)
        done = gpus.lull("watch", *QUICK, "--grace", "100ms", "--do", f"kill=PGID:{job.pid}")
        assert done.returncode == 0, done.stderr
        job.wait(timeout=LIMIT)
        left = [p for p in pids if alive(p)]
        assert len(left) == 1  # the one in a session of its own is not in the group
        os.kill(left[0], signal.SIGKILL)


def test_kill_parent(sim):
    with sim(1) as gpus:
        shell = gpus.start("bash", "-c", '"$0" watch --every 50ms --idle "util < 1 for 500ms" --do kill=parent & sleep 1000; exit 3',
                           gpus.binary)
        assert shell.wait(timeout=LIMIT) == -signal.SIGTERM


def test_process_that_ended_and_whose_number_is_another_is_spared(sim):
    """By handle taken at the start: once it is gone there is nothing to kill."""
    with sim(1) as gpus:
        gpus.set(0, util=90)
        job = gpus.start("sleep", "1000")
        watch = gpus.start_lull("watch", *QUICK, "--do", f"kill={job.pid}")
        read_until(watch.stderr, "watching")
        job.kill()
        job.wait(timeout=LIMIT)
        gpus.set(0, util=0)
        assert watch.wait(timeout=LIMIT) == 0


@pytest.mark.skipif(subprocess.run(["unshare", "-p", "-f", "--mount-proc", "true"], capture_output=True).returncode != 0,
                    reason="no right to make a pid namespace")
def test_kill_container(sim, tmp_path):
    with sim(1) as gpus:
        log = tmp_path / "log"
        script = ('setsid sleep 1000 & sh -c "trap : TERM; sleep 1000" & '
                  '"$0" watch --every 50ms --idle "util < 1 for 500ms" --grace 200ms --do kill=container; '
                  f'echo status $? > {log}; pgrep -c sleep >> {log}')
        done = gpus.run("unshare", "-p", "-f", "--mount-proc", "bash", "-c", script, gpus.binary)
        assert log.read_text() == "status 0\n0\n", done.stderr


def test_kill_what_is_not_there(sim):
    with sim(1) as gpus:
        job = gpus.start("true")
        job.wait(timeout=LIMIT)
        for spec in (f"kill={job.pid}", f"kill=PGID:{job.pid}"):
            done = gpus.lull("watch", *QUICK, "--do", spec)
            assert done.returncode == 125 and str(job.pid) in done.stderr


def test_exec_gets_the_facts(sim, tmp_path):
    with sim(2) as gpus:
        out = tmp_path / "facts"
        done = gpus.lull("watch", *QUICK, "--gpus", "1", "--do", f"exec=cat > {out}")
        assert done.returncode == 0
        facts = json.loads(out.read_text())
        assert facts["gpus"] == ["1"] and facts["readings"][0]["gpu"] == "1"


def test_failing_action_is_retried_and_the_others_done_once(sim, tmp_path):
    with sim(1) as gpus:
        log = tmp_path / "log"
        flaky = f"echo b >> {log}; [ $(grep -c b {log}) -ge 3 ]"
        done = gpus.lull("watch", *QUICK, "--retry-after", "20ms", "--do", f"exec=echo a >> {log}",
                         "--do", f"exec={flaky}", "--do", f"exec=echo c >> {log}")
        assert done.returncode == 0 and log.read_text().split() == ["a", "b", "b", "b", "c"]
        assert done.stderr.count("exit status 1; again in 20ms") == 2


def test_action_that_keeps_failing_is_given_up(sim, tmp_path):
    with sim(1) as gpus:
        log = tmp_path / "log"
        done = gpus.lull("watch", *QUICK, "--retry", "1", "--retry-after", "20ms", "--do", "exec=false",
                         "--do", f"exec=echo x >> {log}")
        assert done.returncode == 125 and "given up" in done.stderr and log.read_text() == "x\n"


# ---- power ----------------------------------------------------------------------------------------

LOGIND = 'case "$*" in *CanPowerOff*|*CanReboot*) echo \'s "{}"\';; esac'


@pytest.mark.parametrize("action, method", [("shutdown", "PowerOff"), ("reboot", "Reboot")])
def test_logind_is_asked_first_then_told_once(sim, programs, action, method):
    with sim(1) as gpus:
        programs.add("busctl", LOGIND.format("yes"))
        programs.add("shutdown")
        done = gpus.lull("watch", *QUICK, "--do", action, env={"PATH": programs.path})
        assert done.returncode == 0, done.stderr
        calls = programs.calls()
        assert len(calls) == 2 and calls[0].endswith(f"Can{method}") and calls[1].endswith(f"{method} b false")


@pytest.mark.parametrize("action, option", [("shutdown", "-h"), ("reboot", "-r")])
def test_shutdown_where_there_is_no_logind(sim, programs, action, option):
    with sim(1) as gpus:
        programs.add("busctl", "exit 1")
        programs.add("shutdown")
        programs.add("sudo", SUDO)
        done = gpus.lull("watch", *QUICK, "--do", action, env={"PATH": programs.path})
        assert done.returncode == 0, done.stderr
        asked = [f"sudo -n -l shutdown {option} now", f"sudo -n shutdown {option} now"] if os.geteuid() != 0 else []
        assert programs.calls()[1:] == [*asked, f"shutdown {option} now"]


def test_missing_right_is_found_out_at_the_start(sim, programs):
    with sim(1) as gpus:
        gpus.set(0, util=95)
        programs.add("busctl", LOGIND.format("challenge"))
        done = gpus.lull("watch", *QUICK, "--do", "shutdown", env={"PATH": programs.alone})
        assert done.returncode == 125 and "challenge" in done.stderr and len(done.stderr.splitlines()) == 1


def test_warning_reaches_terminals_and_a_job_that_comes_back_calls_it_off(sim, programs, tmp_path):
    with sim(1) as gpus:
        programs.add("busctl", LOGIND.format("yes"))
        dev = tmp_path / "dev"
        (dev / "pts").mkdir(parents=True)
        (dev / "pts" / "5").write_text("")
        watch = gpus.start_lull("watch", *QUICK, "--warn", "1h", "--do", "shutdown",
                                env={"PATH": programs.path, "LULL_DEV": str(dev)})
        said = read_until(watch.stderr, "1 terminal warned")
        assert "then: shutdown; all logged-in users are warned 1h before" in said
        assert "goes off in 1h" in (dev / "pts" / "5").read_text()
        gpus.set(0, util=90)
        read_until(watch.stderr, "called off")
        assert watch.poll() is None and len(programs.calls()) == 1
        watch.terminate()


def test_cancel_calls_off_a_shutdown(sim, programs, tmp_path):
    with sim(1) as gpus:
        programs.add("busctl", LOGIND.format("yes"))
        gpus.env["LULL_CONTROL"] = str(tmp_path)  # alone: a cancel reaches everybody
        watch = gpus.start_lull("watch", *QUICK, "--warn", "1h", "--do", "shutdown",
                                env={"PATH": programs.path, "LULL_DEV": str(tmp_path)})
        read_until(watch.stderr, "`lull watch --cancel` cancels it")
        done = gpus.lull("watch", "--cancel")
        assert done.returncode == 0 and "cancelled: shutdown" in done.stdout
        read_until(watch.stderr, "cancelled by")
        again = gpus.lull("watch", "--cancel")
        assert again.returncode == 1 and "nothing to cancel" in again.stdout
        assert watch.poll() is None and len(programs.calls()) == 1
        watch.terminate()
        watch.wait(timeout=LIMIT)
        assert gpus.lull("watch", "--cancel").returncode == 1


# ---- Determined, notify ---------------------------------------------------------------------------

def test_determined_ends_its_task(sim, programs):
    with sim(1) as gpus:
        programs.add("det")
        env = {"PATH": programs.path, "DET_TASK_TYPE": "NOTEBOOK", "DET_TASK_ID": "4711-abc"}
        assert gpus.lull("watch", *QUICK, "--do", "determined", env=env).returncode == 0
        assert programs.calls() == ["det notebook kill 4711-abc"]
        done = gpus.lull("watch", *QUICK, "--do", "determined", env={"PATH": programs.path})
        assert done.returncode == 125 and "DET_TASK_ID" in done.stderr


class Receiver:
    """A web server on 127.0.0.1 that answers with the given statuses, one after the other."""

    def __init__(self, statuses):
        self.bodies = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                outer.bodies.append((self.headers["Content-Type"], self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(statuses.pop(0) if len(statuses) > 1 else statuses[0])
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def test_notify_posts_json_and_is_retried(sim):
    receiver = Receiver([503, 200])
    try:
        with sim(1) as gpus:
            env = {"no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1"}
            done = gpus.lull("watch", *QUICK, "--do", f"notify={receiver.url}", env=env)
            assert done.returncode == 0, done.stderr
            assert len(receiver.bodies) == 2
            kind, body = receiver.bodies[-1]
            assert kind == "application/json" and json.loads(body)["rule"] == "util < 1 for 500ms"
    finally:
        receiver.close()


def test_notify_never_holds_up_what_comes_next(sim, tmp_path):
    with sim(1) as gpus:
        log = tmp_path / "log"
        began = time.monotonic()
        done = gpus.lull("watch", *QUICK, "--limit", "500ms", "--do", "notify=http://127.0.0.1:9/nobody",
                         "--do", f"exec=echo x > {log}", env={"NO_PROXY": "127.0.0.1"})
        assert done.returncode == 125 and log.read_text() == "x\n" and time.monotonic() - began < 15


# ---- mistakes -------------------------------------------------------------------------------------

@pytest.mark.parametrize("arguments, said", [
    ([], "for example --do notify"),  # nothing harmful first
    (["--do", "shutdwn"], "shutdown"),
    (["--do", "exit=300"], "0 to 255"),
    (["--do", "kill"], "kill=1234"),
    (["--do", "kill=init"], "PID"),
    (["--do", "kill=PGID:x"], "PGID:N"),
    (["--do", "exit", "--do", "shutdown"], "after it"),
    (["--do", "exit", "--repeat"], "contradict"),
    (["--do", "exit", "--idle", "util <"], "--idle"),
    (["--do", "notify=ftp://x"], "http"),
    (["--do", "exit", "--warn", "x"], "--warn"),
    (["--do", "exit", "--every", "100d"], "--every: at most 1d would be right"),
])
def test_wrong_command_line(run_lull, arguments, said):
    done = run_lull("watch", *arguments)
    assert done.returncode == 2 and said in done.stderr


@pytest.mark.parametrize("word", ["", "frobnicate", "exit=", "exit=-1", "exit=x", "kill=", "kill=0", "kill=1x",
                                  "kill=PGID:", "kill=PGID:0", "exec", "exec=", "shutdown=1", "notify=x"])
def test_usage_mistakes_in_do_are_2(run_lull, word):
    done = run_lull("watch", "--do", word)
    assert done.returncode == 2, done.stderr
    assert "--do" in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_warning_of_what_nobody_is_warned_of_is_said(sim):
    with sim(1) as gpus:
        done = gpus.lull("watch", *QUICK, "--do", "exit=7", "--warn", "5m")
        assert done.returncode == 7 and "--warn: no user is warned before exit=7, only before shutdown and reboot" in done.stderr


def test_absent_gpu_is_an_error_at_the_start(sim):
    with sim(2) as gpus:
        done = gpus.lull("watch", "--gpus", "5", "--do", "exit")
        assert done.returncode == 2 and "--gpus" in done.stderr


def test_require_gpu(sim):
    with sim(1) as gpus:
        gpus.fault("all", "no-driver")
        assert gpus.lull("watch", "--require-gpu", "--do", "exit").returncode == 125
