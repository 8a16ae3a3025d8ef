"""`lull fill` beside the real nvidia-smi and nvtop: who only looks costs a filler nothing."""
import json
import os
import pathlib
import subprocess

import pytest

from conftest import SMI, NVTOP
from lull_e2e import end, wait_until

# As NVIDIA's own library does, which the simulated one stands for: it has the device file open in the program that uses it.
OPENS = """
#include <fcntl.h>
#include <stdlib.h>
__attribute__((constructor)) static void begin(void) {
  if (getenv("OPENS")) open(getenv("OPENS"), O_RDWR | O_CLOEXEC);
}
"""


@pytest.fixture
def preload(tmp_path):
    (tmp_path / "opens.c").write_text(OPENS)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "opens.so", tmp_path / "opens.c"], check=True)
    return str(tmp_path / "opens.so")


def has_open(pid, file):
    try:
        return any(os.path.realpath(f"/proc/{pid}/fd/{fd}") == str(file) for fd in os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return False


def test_the_filler_keeps_running_beside_nvidia_smi_and_nvtop(clients, tmp_path, preload):
    here = clients("2xA100")
    gpus = here.gpus
    device = os.path.realpath(gpus.folder / "dev/nvidia0")
    log = tmp_path / "fill.log"
    counter = tmp_path / "count"
    gpus.start_lull("fill", "--per-gpu", "--every", "100ms", "--idle", "util < 5 for 500ms", "--confirm", "500ms", "--log-format", "json", "--",
                    "sh", "-c", f"while :; do echo $LULL_GPUS >> {counter}; sleep 0.02; done", stderr=log.open("wb"), env={"LULL_CONTROL": str(tmp_path)})

    def events(*kinds):
        return [e for e in map(json.loads, log.read_text().splitlines()) if e["event"] in kinds]

    def runs():
        before = counter.stat().st_size
        wait_until(lambda: counter.stat().st_size > before, what="the fillers to go on")

    wait_until(lambda: len(events("started")) == 2 and counter.exists(), what="two fillers")
    env = {"LD_PRELOAD": preload, "OPENS": device}
    rows = tmp_path / "smi"
    smi = gpus.start(SMI, "--query-gpu=index,name", "--format=csv,noheader", "-l", "1", env=env, stdout=rows.open("wb"))
    wait_until(lambda: has_open(smi.pid, device), what="nvidia-smi to open the GPU")
    # nvtop needs a terminal: script gives it one. What starts it does not open the GPU.
    top = gpus.start("script", "-qfc", f"exec env LD_PRELOAD={preload} OPENS={device} {NVTOP} -d 5", "/dev/null", stdout=subprocess.DEVNULL, stdin=subprocess.PIPE,
                     env={"TERM": "xterm", "LC_ALL": "C.UTF-8", "HOME": str(tmp_path),
                          "LD_LIBRARY_PATH": f"{gpus.env['LD_LIBRARY_PATH']}:{NVTOP.parents[1]}/lib/x86_64-linux-gnu"})

    def nvtop():
        children = pathlib.Path(f"/proc/{top.pid}/task/{top.pid}/children").read_text().split()
        return any(has_open(pid, device) for pid in children)

    wait_until(nvtop, what="nvtop to open the GPU")
    wait_until(lambda: rows.read_text().count("\n") >= 6, what="three answers of nvidia-smi")
    runs()
    assert smi.poll() is None and nvtop()
    assert events("halted", "yielding", "ended") == []
    end(top)
    end(smi)
