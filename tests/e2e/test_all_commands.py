"""What all commands share: messages, output that does not arrive, signals, and machines out of resources."""
import fcntl
import os
import pathlib
import pty
import re
import resource
import signal
import struct
import subprocess
import termios

import pytest

from conftest import LIMIT, alive, clean_environment, processes_of, read_until, wait_until

COMMANDS = ["status", "run", "watch", "jobs", "keep", "pick", "fill", "park", "unpark", "leases", "release", "record", "replay", "report", "check", "config",
            "serve", "slurm ask", "slurm act", "slurm check", "sim", "sim load", "sim set", "sim fault"]


CLI = pathlib.Path(__file__).parents[2] / "src" / "cli"
# The same name for something else: which GPUs to simulate, a limit and a load, what a choice and what a trace is written as,
# whence samples come, what is done with one job, and a wait that always has a limit.
OTHER_MEANING = {"--gpus": ["sim.cc"], "--util": ["sim.cc"], "--procs": ["pick.cc"], "--format": ["record.cc"],
                 "--from": ["watch.cc"], "--do": ["run.cc"], "--wait": ["park.cc"],
                 "--signal-from": ["trace_command.cc"]}


def defined_options():
    """(file, --name, value): a flag has the value "", an option that names its value elsewhere has None."""
    found = []
    for path in sorted([*CLI.glob("*.cc"), CLI / "shared_options.h"]):
        text = path.read_text()
        found += [(path.name, names, "" if kind == "flag" else None)
                  for kind, names in re.findall(r"\bline\s*\.(option|flag|each)\(\s*\"([^\"]+)\"", text)]
        found += [(path.name, names, value) for names, value in re.findall(r"\badd\(\"(-[^\"]+)\", \"([^\"]+)\"", text)]
        found += [(path.name, names, value) for names, value in re.findall(r"SharedOption k\w+\{\s*\"([^\"]+)\",\s*\"([^\"]*)\"", text)]
    return [(file, name, value) for file, names, value in found for name in names.split(",") if name.startswith("--")]


def test_an_option_of_several_commands_is_defined_once():
    found = [(name, file) for file, name, _ in defined_options() if file not in OTHER_MEANING.get(name, [])]
    assert len(found) > 100
    twice = {name: [file for other, file in found if other == name] for name, _ in found}
    assert not {name: files for name, files in twice.items() if len(files) > 1}, "src/cli/shared_options.h is the place"


# -- words ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("command", [["record", "--for", "20ms"], ["run", "--", "sleep", "1000"], ["watch", "--do", "exit"], ["status"],
                                     ["check", "util < 5"]])
def test_no_driver_is_said_once_and_without_brackets_in_brackets(sim, command):
    with sim(1) as gpus:
        gpus.fault("all", "no-driver")
        process = gpus.start_lull(*command)
        if command[0] in ("run", "watch"):
            text = read_until(process.stderr, "no GPU can be read")
            process.terminate()
        else:
            out, text = process.communicate(timeout=LIMIT)
            text += out
        (line,) = [line for line in text.splitlines() if "driver is not loaded" in line]
        assert line.count("driver is not loaded") == 1, line
        assert not re.search(r"\([^)]*\(", line), line


def test_gpus_that_come_back_are_named_once(sim):
    with sim(2) as gpus:
        gpus.fault("all", "no-driver")
        watching = gpus.start_lull("watch", "--every", "50ms", "--idle", "util < 1 for 1h", "--do", "exit")
        read_until(watching.stderr, "no GPU can be read")
        gpus.clear()
        text = read_until(watching.stderr, "can be read now")
        gpus.set(0, util=90)
        text += read_until(watching.stderr, "busy again")
        watching.terminate()
        text += watching.stderr.read()
        assert len(re.findall("watching GPU", text)) == 1, text


@pytest.mark.parametrize("command", COMMANDS)
def test_help_says_the_default_of_every_option(run_lull, command):
    text = run_lull(*command.split(), "--help").stdout
    # An option, and the lines that its help goes on in.
    options = re.findall(r"^  (?:-\w,)?(--[\w-]+)(.*(?:\n {6,}\S.*)*)", text, re.M)
    assert "--help" in dict(options) or command.startswith("sim")
    flags = [name for _, name, value in defined_options() if value == ""]
    flags += ["--help", "--then", "--graphics", "--mps-server"]
    for name, words in options:
        if name not in flags:
            assert re.search(r"\((default|required)[^()]*(\([^()]+\)[^()]*)*\)", words), f"{name} {words}"


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("width", [60, 80])
def test_help_is_no_wider_than_the_screen(run_lull, command, width):
    text = run_lull(*command.split(), "--help", env=clean_environment(COLUMNS=width)).stdout
    for line in re.split("^Examples?:", text, flags=re.M)[0].splitlines():  # those are there to be copied
        assert len(line) <= width, line


# -- output -----------------------------------------------------------------------------------------
PRINTING = [["status"], ["status", "--json"], ["check", "util < 5"], ["check", "util < 5", "--json"], ["leases"], ["leases", "--json"],
            ["jobs"], ["jobs", "--json"], ["replay", "TRACE", "--idle", "util < 5 for 5s"], ["replay", "TRACE", "--idle", "util < 5 for 5s", "--json"], ["sim", "show"],
            ["sim", "show", "--json"], ["sim", "models"], ["--help"], ["--version"], ["run", "--help"], ["sim", "--help"],
            ["pick", "--no-lease"]]


def test_output_that_does_not_arrive_is_said_and_a_reader_that_left_is_not(sim, tmp_path):
    """`sim show >/dev/full` said nothing and exited with 0, or was aborted where the output was long."""
    trace = tmp_path / "trace.csv"
    trace.write_text("time,gpu,util_percent\n" + "".join(f"2026-01-01T00:00:{i:02}Z,0,0\n" for i in range(60)))
    with sim(64) as gpus:
        assert gpus.lull("pick", "--hold", "100s").returncode == 0
        for command in PRINTING:
            command = [str(trace) if word == "TRACE" else word for word in command]
            with open("/dev/full", "w") as full:
                done = gpus.run(gpus.binary, *command, stdout=full, stderr=subprocess.PIPE, capture_output=False)
            assert done.returncode == 125, (command, done.returncode, done.stderr)
            assert done.stderr.count("\n") == 1 and "No space left on device" in done.stderr, (command, done.stderr)
            for how in (signal.SIG_DFL, signal.SIG_IGN):
                read_end, write_end = os.pipe()
                os.close(read_end)
                done = gpus.run(gpus.binary, *command, stdout=write_end, stderr=subprocess.PIPE, capture_output=False,
                                preexec_fn=lambda how=how: signal.signal(signal.SIGPIPE, how), restore_signals=False)
                os.close(write_end)
                assert done.returncode in (0, -signal.SIGPIPE) or command[0] == "pick", (command, done.returncode, done.stderr)
                assert done.stderr == "" or command[0] == "pick", (command, done.stderr)
        assert gpus.lull("release", "all").returncode == 0


@pytest.mark.parametrize("where", ["full", "closed"])
def test_a_complaint_that_nobody_can_read_is_a_status_all_the_same(lull, tmp_path, where):
    """It was an abort."""
    redirect = "2>/dev/full" if where == "full" else "2>&-"
    for command, status in (("nonsense", 2), ("status --nonsense", 2), ("check 'utl < 5'", 2), ("pick --util 200", 2),
                            ("sim --gpus 0", 2), (f"replay {tmp_path}/none --idle 'util < 5'", 125), ("record --for 10ms", 125)):
        done = subprocess.run(["sh", "-c", f"exec {lull} {command} {redirect}"], capture_output=True, timeout=LIMIT,
                              env=clean_environment(LULL_NVML=tmp_path / "none.so"))
        assert done.returncode == status, (command, done.returncode)


# -- signals ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("command", [["status", "--watch=50ms"], ["record", "--every", "50ms"]])
def test_sigusr1_lets_go_of_the_driver_and_ends_nothing(sim, command):
    with sim(1) as gpus:
        process = gpus.start_lull(*command, stdout=subprocess.PIPE)
        process.stdout.readline()
        process.stdout.readline()
        assert gpus.lull("sim", "reset", 0).returncode == 1  # held
        process.send_signal(signal.SIGUSR1)
        wait_until(lambda: gpus.lull("sim", "reset", 0).returncode == 0, what="the reset")
        assert alive(process.pid)
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait(LIMIT) == -signal.SIGINT


def limited_to(size):
    """Who may use this much memory."""
    found = []
    for one in pathlib.Path("/proc").glob("[0-9]*/limits"):
        try:
            if re.search(rf"^Max address space +{size} ", one.read_text(), re.M):
                found.append(one.parent.name)
        except OSError:
            pass
    return found


# -- nothing left -----------------------------------------------------------------------------------
@pytest.mark.parametrize("command", [["status", "--json"], ["check", "util < 5"], ["record", "--for", "50ms"], ["run", "--", "sh", "-c", "exit 7"],
                                     ["watch", "--require-gpu", "--idle", "util < 100 for 0s", "--every", "20ms", "--do", "exit=7"],
                                     ["pick", "--", "sh", "-c", "exit 7"]], ids=lambda one: one[0])
@pytest.mark.parametrize("what", [resource.RLIMIT_NOFILE, resource.RLIMIT_AS], ids=["descriptors", "memory"])
def test_without_descriptors_or_memory_it_fails_as_lull_not_as_the_command(sim, command, what):
    with sim(1) as gpus:
        for limit in range(4, 16) if what == resource.RLIMIT_NOFILE else [n << 20 for n in (8, 9, 12, 16, 20, 24, 32)]:
            if what == resource.RLIMIT_AS:
                limit += os.getpid() % 4096 * 4096 % (1 << 20)  # nobody else's: those who have it are of this test
            def limited(*words, limit=limit):
                return gpus.lull(*words, preexec_fn=lambda: resource.setrlimit(what, (limit, limit)))
            done = limited(*command)
            if what == resource.RLIMIT_AS:
                wait_until(lambda limit=limit: not limited_to(limit), what="the end of whoever asked the driver")
            if re.search("error while loading shared libraries|cannot allocate TLS data structures", done.stderr):
                continue  # it did not come to life
            if done.returncode == -signal.SIGSEGV and limited("--version").returncode == -signal.SIGSEGV:
                continue  # the program itself does not fit
            good = 7 if "7" in command[-1] else 0
            assert done.returncode in (125, good), (limit, done.returncode, done.stderr)
            if done.returncode == 125:
                said = done.stderr.splitlines()
                assert all(re.match(r"([\d-]+ [\d:]+[+-]\d{4} )?lull: ", line) for line in said), (limit, done.stderr)
                # It may run out after it has said how it judges.
                assert len(said) == 1 or (len(said) == 2 and "lull: watching: " in said[0]), (limit, done.stderr)
            wait_until(lambda: not processes_of(gpus.folder, "lull-sensor"), what="the end of the sensor")


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes somebody else")
def test_without_processes_it_fails_as_lull_not_as_the_command(run_lull, tmp_path):
    def poor():
        os.setgid(54321)
        os.setuid(54321)
        resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
    done = run_lull("run", "--", "/bin/sh", "-c", "exit 7", env=clean_environment(LULL_LEASES=tmp_path), preexec_fn=poor)
    assert done.returncode == 125, (done.returncode, done.stderr)
    assert done.stderr.count("\n") == 1 and "Resource temporarily unavailable" in done.stderr


# -- evidence ---------------------------------------------------------------------------------------
def test_evidence_that_could_not_be_written_is_nowhere(sim, tmp_path):
    with sim(1) as gpus:
        folder = tmp_path / "evidence"
        job = f"rmdir {folder}; touch {folder}; exec sleep 1000"
        done = gpus.run_idle_once(folder.is_file, gpus.binary, "run", "--gpus", "0", "--delay", "0", "--every", "50ms", "--idle",
                                  "util < 1 for 200ms", "--evidence", folder, "--", "sh", "-c", job)
        assert done.returncode == 124, done.stderr
        assert "no evidence could be written" in done.stderr and "Not a directory" in done.stderr, done.stderr
        assert "evidence is in" not in done.stderr, done.stderr


# -- narrow terminals -------------------------------------------------------------------------------
def on_a_terminal(command, env, columns):
    """What a command shows on a terminal so wide, without colours; --watch is ended after its second picture."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True)
    os.close(theirs)
    text = b""
    try:
        while True:
            text += os.read(ours, 65536)
            if text.count(b"\x1b[H") >= 3 and process.poll() is None:
                process.send_signal(signal.SIGINT)
    except OSError:  # the terminal is nobody's any more
        pass
    finally:
        os.close(ours)
        if process.poll() is None:
            process.wait(LIMIT)
    assert process.returncode in (0, -signal.SIGINT), text
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.decode().replace("\x1b[H", "\n")).replace("\r", "").rstrip("\n").split("\n")


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_no_line_is_wider_than_the_terminal(sim, tmp_path, columns):
    """A line that is too long is broken by the terminal, in the middle of a word, and a live picture falls apart."""
    trace = tmp_path / "trace.csv"
    trace.write_text("time,gpu,util_percent\n" + "".join(
        f"2026-01-01T0{hour}:{minute:02}:00Z,{gpu},{90 if minute % 20 < 5 else 0}\n"
        for hour in range(5) for minute in range(60) for gpu in range(3)))
    replay = ["replay", str(trace), "--idle", "util < 5 for 5m", "--sweep", "for=5m,10m,30m", "--price", "2.5"]
    with sim("2xH100,1xT4") as gpus:
        gpus.load(0, 95, "8GiB", None, "--as", "python3 train.py --config /a/very/long/path/to/a/config/file.yaml")
        assert gpus.lull("pick", "--hold", "100s").returncode == 0
        env = {**gpus.env, "TERM": "xterm", "LANG": "C.UTF-8"}
        for name in ("COLUMNS", "LC_ALL", "LC_CTYPE"):
            env.pop(name, None)
        filling = gpus.start_lull("fill", "--gpus", "2", "--", "/nowhere/a/program")
        wait_until(lambda: gpus.lull("fill", "--status").returncode == 0, what="lull fill")
        for command in (["status"], ["status", "--watch=50ms"], ["leases"], ["jobs"], ["fill", "--status"], replay,
                        ["check", "util < 5 and mem_used > 1GiB for 30m"]):
            lines = on_a_terminal([gpus.binary, *command], env, columns)
            assert len(lines) > 1, command
            assert [line for line in lines if len(line) > columns] == [], command
        # What says whether a GPU is free is there at any width.
        assert {"GPU", "UTIL", "OWNER"} <= set(on_a_terminal([gpus.binary, "status"], env, columns)[0].split())
        assert gpus.lull("release", "all").returncode == 0
        filling.terminate()
        filling.communicate(timeout=LIMIT)


# -- options ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("command, option", [(["record"], "--for"), (["run"], "--idle"), (["pick"], "--gpus")])
def test_an_option_that_is_given_twice_is_said_to_be(run_lull, command, option):
    """`--for` given twice said "needs a value"."""
    done = run_lull(*command, option, "1s", option, "2s", "--", "true")
    assert done.returncode == 2 and f"{option} is given 2 times: once would be right" in done.stderr, done.stderr
