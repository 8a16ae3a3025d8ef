"""`lull` itself: its table of commands, its help, and what it says to a wrong word."""
import os
import re
import subprocess

import pytest

from conftest import ROOT, clean_environment


def test_lull_needs_libc_and_libm_and_nothing_else(lull):
    found = subprocess.run(["readelf", "--dynamic", lull], capture_output=True, text=True, check=True).stdout
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", found))
    if any(name.startswith(("libasan", "libtsan", "libubsan")) for name in needed):
        pytest.skip("a build that looks for mistakes needs more")
    assert {name for name in needed if not name.startswith("ld-linux")} == {"libc.so.6", "libm.so.6"}


def test_every_command_that_is_written_is_listed(run_lull):
    written = {name for path in (ROOT / "src/cli").glob("*.cc")
               for name in re.findall(r"^int (\w+)_command\(int argc, char\*\* argv\) \{", path.read_text(), re.M)}
    written -= {"prolog", "epilog", "ask", "act"}  # of lull slurm
    listed = set(re.findall(r"^  (\w+) ", run_lull("--help").stdout, re.M))
    drop_ins = {"gpu_mon", "gpu_idle_timeout", "gpu_sentinel", "gpuselect"}
    for_others = {"complete", "end", "signal"}  # for shells, and for Python
    assert "status" in written and written - drop_ins - for_others == listed


def test_every_command_explains_itself_with_an_example(run_lull):
    for name in re.findall(r"^  (\w+) ", run_lull("--help").stdout, re.M):
        done = run_lull(name, "--help")
        assert done.returncode == 0, name
        assert done.stderr == "", name
        assert re.search(r"[Ee]xample", done.stdout), f"lull {name} --help shows no example"


def test_version_is_the_build_files(run_lull):
    version = re.search(r"project\(lull VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
    assert run_lull("--version").stdout == f"lull {version}\n"


def test_a_wrong_command_gets_the_nearest_one(run_lull):
    done = run_lull("staus")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "lull: there is no command 'staus'; did you mean 'status'?\n"
    assert "lull --help" in run_lull("frobnicate").stderr


def test_help_of_a_command_is_its_help(run_lull):
    assert run_lull("help", "run").stdout == run_lull("run", "--help").stdout
    assert run_lull("help", "sim", "set").stdout == run_lull("sim", "set", "--help").stdout
    assert run_lull("help").stdout == run_lull("--help").stdout
    wrong = run_lull("help", "runn")
    assert wrong.returncode == 2 and "did you mean 'run'" in wrong.stderr


def test_shells_are_offered_what_is_there(sim):
    with sim("1xH100,1xT4") as gpus:
        pid = gpus.load(1, util=50).pid
        def offered(kind):
            return dict(line.split("\t") for line in gpus.lull("__complete", kind).stdout.splitlines())
        assert offered("gpus") == {"0": "NVIDIA H100 80GB HBM3", "1": "Tesla T4"}
        assert str(pid) in offered("jobs") and "util" in offered("signals") and "hung" in offered("rules")
        assert "status" in offered("commands") and offered("leases") == {}


def test_who_has_ended_already_needs_no_end(lull):
    """Python's process may be gone before `lull-end` has looked at it: that is what was wanted."""
    child = subprocess.Popen(["true"])
    handle = os.pidfd_open(child.pid)
    child.wait()
    done = subprocess.run(["lull-end", str(child.pid), "0s", "1s"], executable=lull, env=clean_environment(), capture_output=True,
                          text=True, timeout=60, pass_fds=(3,), preexec_fn=lambda: os.dup2(handle, 3))
    os.close(handle)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
