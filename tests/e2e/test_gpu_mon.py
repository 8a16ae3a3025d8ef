"""The drop-in gpu_mon with real processes on simulated GPUs: its file, its lines, and the faults that it no longer has."""
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

from conftest import LIMIT, lines_in, wait_until
from test_fill import gone, holding

LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (INFO|WARNING) (gpu_mon       |ProcessTracker) (.*)$")
TTY_OFF = "[tty]\nenabled=False\n"
# Leaves its pid, its environment and a child that ignores TERM; opens nothing.
FILLER = """#!/bin/sh
echo $$ >> '{folder}/pids'
echo "$(pwd) $CUDA_VISIBLE_DEVICES ${{HOME:+home}} ${{PATH:+path}} $*" >> '{folder}/seen'
echo hello
sh -c 'trap "" TERM; echo $$ >> {folder}/pids; while :; do sleep 1; done' &
wait
"""


class Mon:
    def __init__(self, gpus, folder, config, program="gpu_mon"):
        self.folder = folder
        self.log = folder / "log"
        (folder / "conf").write_text(config)
        binary = os.path.join(os.path.dirname(str(gpus.binary)), program)
        self.process = gpus.start(*([sys.executable] if program.endswith(".py") else []), binary, "-c", folder / "conf",
                                  stderr=self.log.open("ab"), env={"LULL_CONTROL": str(folder)})

    def lines(self):
        found = []
        for line in lines_in(self.log):
            match = LINE.match(line)
            assert match, line
            found.append(f"{match[1]} {match[2].strip()} {match[3]}")
        return found

    def wait_for(self, text, count=1):
        try:
            wait_until(lambda: sum(text in line for line in self.lines()) >= count, what=text)
        except AssertionError:
            raise AssertionError(f"not {count} × {text!r} in\n{self.log.read_text()}") from None

    def pids(self):
        try:
            return [int(word) for word in (self.folder / "pids").read_text().split()]
        except FileNotFoundError:
            return []

    def wait_pids(self, count):
        wait_until(lambda: len(self.pids()) >= count, what=f"{count} processes")
        return self.pids()


@pytest.fixture
def filler(tmp_path):
    path = tmp_path / "miner-run"
    path.write_text(FILLER.format(folder=tmp_path))
    path.chmod(0o755)
    return path


def per_gpu(filler, folder, *gpus, log=""):
    text = "[defaults]\n; how frequently\ninterval_seconds=1\n[gpu-all]\ngpus=ALL\nignore_programs=nvidia-smi\n"
    for name in gpus:
        text += f"[process-{name}]\ndir={folder}\ncmd={filler} 'two words' 100%%\ngpus={name}\n" + (f"log={log}\n" if log else "")
    return text + TTY_OFF


def test_a_program_per_gpu_with_its_environment_and_its_log(sim, tmp_path, filler):
    with sim(2) as gpus:
        (tmp_path / "out").write_text("before\n")
        mon = Mon(gpus, tmp_path, per_gpu(filler, tmp_path, 0, 1, log=tmp_path / "out"))
        pids = mon.wait_pids(4)
        mon.wait_for("INFO ProcessTracker Starting: ", 2)
        lines = mon.lines()
        assert lines[0] == "INFO gpu_mon GPUs detected: "
        assert lines[1] == "INFO gpu_mon GPUInfo(file_name='/dev/nvidia0', id=0)"
        assert f"INFO ProcessTracker Starting: {filler} 'two words' 100% on GPUs 0" in lines
        seen = sorted((tmp_path / "seen").read_text().splitlines())
        assert seen == [f"{tmp_path} {n} home path two words 100%" for n in (0, 1)]
        wait_until(lambda: (tmp_path / "out").read_text() == "before\nhello\nhello\n", what="their output")
        mon.process.send_signal(signal.SIGINT)
        assert mon.process.wait(timeout=LIMIT * 2) == 0
        assert gone(pids), "the whole tree ends with it, also what ignores TERM"
        assert "INFO gpu_mon Interrupt received, exit gracefully" in mon.lines()


def test_who_opens_a_gpu_ends_its_program_and_the_others_go_on(sim, tmp_path, filler):
    with sim(2) as gpus:
        mon = Mon(gpus, tmp_path, per_gpu(filler, tmp_path, 0, 1))
        mon.wait_pids(4)
        mon.wait_for("Starting: ", 2)
        with holding(gpus.folder / "dev/nvidia0") as job:
            name = pathlib.Path(f"/proc/{job.pid}/comm").read_text().strip()
            mon.wait_for("INFO ProcessTracker Stop 1 processes preempted by proc ProcInfo(file_name='/dev/nvidia0', gpu_id=0, "
                         f"pid={job.pid}, name='{name}')")
            assert sum("Stop" in line for line in mon.lines()) == 1
        mon.wait_for("on GPUs 0", 2)
        mon.process.send_signal(signal.SIGKILL)
        mon.process.wait(timeout=LIMIT)
        wait_until(lambda: gone(mon.pids()), what="the programs to go with it")


@pytest.mark.parametrize("ignored, script", [("mygpustat", "mygpustat"), ("python3", "mygpustat"), ("stat.py", "stat.py"),
                                             ("a-very-long-name-of-a-monitor", "a-very-long-name-of-a-monitor")])
def test_ignored_programs_are_known_by_name_and_script(sim, tmp_path, filler, ignored, script):
    """By what fuser shows, or by the script: python3 runs it as such, or it is started by its first line."""
    path = tmp_path / script
    path.write_text("#!/usr/bin/python3\nimport sys\nheld = open(sys.argv[1])\nprint(1, flush=True)\nsys.stdin.read()\n")
    path.chmod(0o755)
    with sim(1) as gpus:
        config = per_gpu(filler, tmp_path, 0).replace("=nvidia-smi", f"=nvidia-smi,{ignored}")
        mon = Mon(gpus, tmp_path, config)
        mon.wait_pids(2)
        for command in [[path]] * (ignored != "python3") + [["python3", path]] * (ignored in ("python3", "stat.py")):
            looks = gpus.start(*command, gpus.folder / "dev/nvidia0", stdin=subprocess.PIPE, env={"PATH": "/usr/bin:/bin"})
            assert looks.stdout.readline() == "1\n"
            mon.wait_for(f"Whitelisted proc: ProcInfo(file_name='/dev/nvidia0', gpu_id=0, pid={looks.pid}, ", 2)
            looks.stdin.close()
            looks.wait(timeout=LIMIT)
        assert not any("Stop 1" in line for line in mon.lines())


def test_a_program_that_ends_well_is_started_again(sim, tmp_path):
    config = ("[defaults]\ninterval_seconds=1\n[process-0]\ndir=/\ncmd=true\ngpus=0\n"
              "[process-1]\ndir=/\ncmd=false\ngpus=1\n" + TTY_OFF)
    with sim(2) as gpus:
        mon = Mon(gpus, tmp_path, config)
        mon.wait_for("INFO ProcessTracker Starting: true on GPUs 0", 4)
        mon.wait_for("INFO ProcessTracker Process for GPU 0 is terminated", 4)
        assert not any("process-0" in line for line in mon.lines())
        assert sum("Starting: false" in line for line in mon.lines()) == 1
        assert any("process-1 on GPU 1: backing off" in line for line in mon.lines())


def test_what_is_told_at_every_interval(sim, tmp_path, filler):
    """In the original's order: who has a GPU open, then what is known of them, then how many are idle."""
    with sim(3) as gpus:
        mon = Mon(gpus, tmp_path, per_gpu(filler, tmp_path, 0))
        with holding(gpus.folder / "dev/nvidia1") as job:
            mon.wait_for("INFO gpu_mon ProcInfo(", 3)
            name = pathlib.Path(f"/proc/{job.pid}/comm").read_text().strip()
            every = [f"INFO gpu_mon ProcInfo(file_name='/dev/nvidia1', gpu_id=1, pid={job.pid}, name='{name}')",
                     "INFO ProcessTracker 1 gpus are idle",
                     "WARNING ProcessTracker GPU 2 is idle, but we have no process config, ignored"]
            lines = mon.lines()
            last = len(lines) - lines[::-1].index(every[0]) - 1
            before = len(lines[:last]) - lines[:last][::-1].index(every[0]) - 1
            assert lines[before:last] == every


def test_the_one_for_all_goes_first_and_sees_all(sim, tmp_path, filler):
    config = (f"[defaults]\ninterval_seconds=1\n[process-0]\ndir=/\ncmd={filler} one\ngpus=0\n"
              f"[process-all]\ndir=/tmp\ncmd={filler} all\ngpus=all\n" + TTY_OFF)
    with sim(2) as gpus:
        mon = Mon(gpus, tmp_path, config, program="gpu_mon.py")
        mon.wait_pids(2)
        mon.wait_for(f"Starting: {filler} all on all GPUs")
        assert (tmp_path / "seen").read_text() == "/tmp  home path all\n", "CUDA_VISIBLE_DEVICES is left alone"
        mon.process.terminate()
        assert mon.process.wait(timeout=LIMIT * 2) == -signal.SIGTERM
        assert gone(mon.pids())


def test_two_gpus_are_one_start_and_what_is_missing_is_said(sim, tmp_path, filler):
    config = (f"[defaults]\ninterval_seconds=1\n[process-a]\ndir=/\ncmd={filler}\ngpus=0,1\n"
              f"[process-b]\ndir=/\ncmd={tmp_path}/nothing\ngpus=2\n[process-c]\ndir=/\ncmd=true\ngpus=9\n" + TTY_OFF)
    with sim(4) as gpus:
        mon = Mon(gpus, tmp_path, config)
        mon.wait_pids(2)
        mon.wait_for("WARNING ProcessTracker GPU 3 is idle, but we have no process config, ignored", 2)
        assert (tmp_path / "seen").read_text().count("\n") == 1
        assert "0,1" in (tmp_path / "seen").read_text()
        mon.wait_for(f"WARNING ProcessTracker process-b on GPU 2: could not be started: {tmp_path}/nothing: No such file or directory")
        mon.process.terminate()
        mon.process.wait(timeout=LIMIT * 2)


@pytest.mark.parametrize("config, words", [
    ("x=1\n", "conf: line 1: 'x=1' is before the first [section]"),
    ("[defaults]\ninterval_seconds=1\n[process]\ngpus=0\ndir=/\n", "conf: line 3: section [process] lacks 'cmd'"),
])
def test_a_mistake_is_one_line(sim, tmp_path, config, words):
    with sim(1) as gpus:
        mon = Mon(gpus, tmp_path, config)
        assert mon.process.wait(timeout=LIMIT) == 1
        text = mon.log.read_text()
        assert text.startswith("gpu_mon: ") and text.endswith(words + "\n") and text.count("\n") == 1


def test_no_file_and_wrong_words(sim, tmp_path):
    with sim(1) as gpus:
        def run(*words):
            return gpus.run(os.path.join(os.path.dirname(str(gpus.binary)), "gpu_mon"), *words, env={"HOME": str(tmp_path)})
        done = run()
        assert (done.returncode, done.stderr) == (1, "gpu_mon: FileNotFoundError: Configuration not found: ~/.config/gpu_mon.conf\n")
        assert run("-x").returncode == 2
        assert run("-h").stdout.startswith("usage: gpu_mon.py [-h] [-c CONF]\n")
