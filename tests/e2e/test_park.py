"""`lull park` and `lull unpark`, against a stand-in for cuda-checkpoint (tests/park) that fails at every step."""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading

import pytest
from conftest import LIMIT, ROOT, alive, build_dir, processes_of, wait_until
from test_leases_hostile import locked, ticket

SCENARIO = 'driver = "570.86.15"\n[[gpu]]\nmodel = "H100"\ncount = 2\n'
ONE_MEMORY = "64MiB"


class Place:
    """A simulation with a stand-in tool."""

    def __init__(self, gpus, folder):
        self.gpus = gpus
        self.tools = folder
        self.dir = folder / "state"
        self.dir.mkdir()
        shutil.copy(ROOT / "tests/park/cuda-checkpoint", folder / "cuda-checkpoint")
        gpus.env["STAND_IN_DIR"] = str(self.dir)
        gpus.env["PATH"] = f"{folder}:{gpus.env['PATH']}"
        self.entries = gpus.folder / "park"

    def state(self, process):
        pid = getattr(process, "pid", process)
        file = self.dir / f"state.{pid}"
        return file.read_text().strip() if file.exists() else "running"

    def fault(self, action, what, process=None, once=False):
        name = ("once." if once else "fault.") + action + (f".{process.pid}" if process else "")
        (self.dir / name).write_text(what + "\n")

    def clear(self):
        for file in [*self.dir.glob("fault.*"), *self.dir.glob("once.*")]:
            file.unlink()

    def job(self, count=2):
        """A job of several processes, each on a GPU; its first process is a shell."""
        loads = "; ".join(f"{self.gpus.binary} sim load --gpu {i} --util 0 --mem {ONE_MEMORY} &" for i in range(count))
        shell = self.gpus.start("sh", "-c", loads.replace(";", "") + " wait", start_new_session=True)
        wait_until(lambda: len(self.workers(shell)) == count, what="the job")
        return shell, self.workers(shell)

    def workers(self, shell):
        text = pathlib.Path(f"/proc/{shell.pid}/task/{shell.pid}/children").read_text()
        return [int(pid) for pid in text.split() if self.gpus.holds(int(pid))]

    def lull(self, *args, **kwargs):
        return self.gpus.lull(*args, **kwargs)

    def limits(self):
        """Short ones for a tool that hangs, which would be killed anyway; a loaded machine may need longer for one that works."""
        hangs = any(file.read_text().startswith("hang") for file in [*self.dir.glob("fault.*"), *self.dir.glob("once.*")])
        return "2s" if hangs else "30s"

    def park(self, process, *more, **kwargs):
        return self.lull("park", "--lock-limit", self.limits(), "--limit", self.limits(), *more, process.pid, **kwargs)

    def unpark(self, *args, **kwargs):
        return self.lull("unpark", "--limit", self.limits(), *args, **kwargs)

    def entry_files(self):
        return [one for one in self.entries.glob("[!.]*") if one.suffix != ".lock"]

    def step(self):
        """That was reached, by the one entry; none: there is no entry."""
        files = self.entry_files()
        assert len(files) <= 1, files
        try:
            return files[0].read_text().partition("\nstep: ")[2].partition("\n")[0] if files else None
        except FileNotFoundError:
            return None

    def calls(self, action=None):
        file = self.dir / "calls"
        lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        return [line for line in lines if action in (None, line[0])]

    def effects(self):
        file = self.dir / "effects"
        return [tuple(line.split()) for line in file.read_text().splitlines()] if file.exists() else []

    def all_in(self, workers, state):
        return all(self.state(one) == state for one in workers)


def is_roots_alone(folder):
    return all(one.stat().st_uid == 0 and not one.stat().st_mode & 0o022 for one in (folder, *folder.parents))


@pytest.fixture
def place(sim, tmp_path):
    # Root runs no tool from a folder that others can write to, such as those below /tmp.
    above = tmp_path
    if os.geteuid() == 0:
        above = next((one for one in (build_dir(), ROOT / "build", pathlib.Path("/run")) if is_roots_alone(one)), None)
        if above is None:
            pytest.skip("there is no folder that is root's alone")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="park-", dir=above))
    yield Place(sim(text=SCENARIO), folder)
    shutil.rmtree(folder, ignore_errors=True)


def test_a_job_is_parked_and_comes_back(place):
    shell, workers = place.job()
    done = place.park(shell)
    assert done.returncode == 0, done.stderr
    assert "parked as" in done.stdout and "64.0 MiB of GPU 0, 64.0 MiB of GPU 1" in done.stdout
    assert place.all_in(workers, "checkpointed") and place.step() == "parked"
    listed = place.lull("park")
    assert "parked" in listed.stdout and str(workers[0]) in listed.stdout
    again = place.park(shell)
    assert again.returncode == 1 and "parked" in again.stderr
    back = place.unpark(str(shell.pid))
    assert back.returncode == 0, back.stderr
    assert place.all_in(workers, "running") and place.step() is None
    # All are locked before one is checkpointed, and all are restored before one is unlocked.
    news = [new for _, _, new in place.effects()]
    assert news == ["locked"] * 2 + ["checkpointed"] * 2 + ["locked"] * 2 + ["running"] * 2


@pytest.mark.parametrize("driver, persistence, mig, says", [
    ("565.57.01", "on", None, "it must be 570"), ("570.86.15", "off", None, "persistence mode")])
def test_what_is_not_prepared_is_not_touched(place, sim, driver, persistence, mig, says):
    gpus = sim(text=f'driver = "{driver}"\n[[gpu]]\nmodel = "H100"\n')
    gpus.env |= {"STAND_IN_DIR": str(place.dir), "PATH": place.gpus.env["PATH"]}
    gpus.set(0, persistence=persistence)
    load = gpus.load(0, util=0, mem=ONE_MEMORY)
    done = gpus.lull("park", load.pid)
    assert done.returncode == 1 and says in done.stderr, done.stderr
    assert place.calls() == []


def test_a_thread_id_and_a_process_of_another_start_are_not_taken_for_the_job(place):
    shell, workers = place.job(1)
    ticks = pathlib.Path(f"/proc/{workers[0]}/stat").read_text().rpartition(")")[2].split()[19]
    wrong = place.lull("park", f"{workers[0]}@{int(ticks) + 1}")
    assert wrong.returncode == 1 and "began at another time" in wrong.stderr
    thread = threading.Thread(target=(stop := threading.Event()).wait)
    thread.start()
    done = place.lull("park", thread.native_id)
    stop.set()
    thread.join()
    assert done.returncode == 1 and f"is a thread of process {os.getpid()}" in done.stderr
    assert place.calls() == []
    right = place.lull("park", f"{workers[0]}@{ticks}")
    assert right.returncode == 0, right.stderr


def test_a_process_without_a_gpu_and_bad_words_are_refused(place):
    idle = place.gpus.start("sleep", "100")
    done = place.park(idle)
    assert done.returncode == 1 and "uses a GPU" in done.stderr
    assert place.lull("park", "1", "tree:2").returncode == 2
    assert place.lull("park", "12@x").returncode == 2
    assert place.lull("park", "--limit", "never", "1").returncode == 2
    assert place.lull("unpark", "--wait", "x").returncode == 2
    assert place.unpark("77").returncode == 1
    assert place.unpark().returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is that careful")
def test_root_runs_no_tool_that_others_could_have_put_there(place, tmp_path):
    shell, _ = place.job(1)
    open_folder = tmp_path / "open"
    open_folder.mkdir()
    tool = shutil.copy(place.tools / "cuda-checkpoint", open_folder / "cuda-checkpoint")
    open_folder.chmod(0o777)
    done = place.park(shell, "--cuda-checkpoint", tool)
    assert done.returncode == 1 and "can be changed by" in done.stderr
    done = place.park(shell, env={"PATH": f"{open_folder}:{place.gpus.env['PATH']}"})
    assert done.returncode == 1 and "can be changed by" in done.stderr
    link = place.tools / "link"
    link.symlink_to(tool)
    done = place.park(shell, "--cuda-checkpoint", link)
    assert done.returncode == 1 and "can be changed by" in done.stderr
    assert place.calls() == []


# What goes wrong, at which step: the job runs on, as it did before.
@pytest.mark.parametrize("action", ["lock", "checkpoint"])
@pytest.mark.parametrize("fault", ["hang", "refuse", "lie", "out-of-memory", "other"])
def test_a_step_that_fails_leaves_the_job_running(place, action, fault):
    shell, workers = place.job()
    (place.dir / f"fault.{action}.{workers[1]}").write_text(fault)
    done = place.park(shell)
    assert done.returncode == 1, (done.stdout, done.stderr)
    assert "the job runs on" in done.stderr and str(workers[1]) in done.stderr
    assert place.all_in(workers, "running") and place.step() is None
    assert place.unpark().returncode == 0


@pytest.mark.parametrize("action", ["lock", "checkpoint"])
@pytest.mark.parametrize("fault", ["late", "hang-after"])
def test_a_step_that_worked_counts_whatever_the_tool_said(place, action, fault):
    shell, workers = place.job()
    (place.dir / f"fault.{action}.{workers[0]}").write_text(fault)
    done = place.park(shell)
    assert done.returncode == 0, done.stderr
    assert place.all_in(workers, "checkpointed") and place.step() == "parked"


@pytest.mark.parametrize("action, state", [("lock", "running"), ("checkpoint", "running")])
def test_a_process_that_dies_meanwhile_does_not_block_the_others(place, action, state):
    shell, workers = place.job()
    (place.dir / f"fault.{action}.{workers[1]}").write_text("die")
    done = place.park(shell)
    assert done.returncode == 1, done.stderr
    wait_until(lambda: not alive(workers[1]), what="its end")
    assert place.state(workers[0]) == state and place.step() is None


def test_a_job_that_fails_for_good_is_said_to_be_lost(place):
    shell, workers = place.job()
    (place.dir / f"fault.checkpoint.{workers[1]}").write_text("break")
    done = place.park(shell)
    assert done.returncode == 125 and "lost" in done.stderr
    assert place.state(workers[0]) == "running" and place.step() is None


@pytest.mark.parametrize("fault", ["garbage", "refuse", "hang"])
def test_a_state_that_cannot_be_told_stops_everything_before_it_begins(place, fault):
    shell, workers = place.job(1)
    place.fault("get-state", fault)
    done = place.park(shell)
    assert done.returncode == 1 and "in an unknown state" in done.stderr
    assert [call[0] for call in place.calls()] == ["get-state"] and place.entry_files() == []


def test_a_lock_that_cannot_be_taken_back_is_said_and_repaired_later(place):
    shell, workers = place.job()
    (place.dir / f"fault.checkpoint.{workers[1]}").write_text("refuse")
    place.fault("unlock", "refuse")
    done = place.park(shell)
    assert done.returncode == 125 and "tries again" in done.stderr
    assert place.step() is not None
    place.clear()
    done = place.unpark()
    assert done.returncode == 0, done.stderr
    assert place.all_in(workers, "running") and place.step() is None


# ---- the way back

@pytest.mark.parametrize("fault", ["hang", "refuse", "lie", "out-of-memory", "other"])
def test_a_restore_that_fails_leaves_the_whole_job_parked(place, fault):
    shell, workers = place.job()
    assert place.park(shell).returncode == 0
    (place.dir / f"fault.restore.{workers[1]}").write_text(fault)
    done = place.unpark()
    assert done.returncode == 1 and "stays parked" in done.stderr and str(workers[1]) in done.stderr
    assert place.all_in(workers, "checkpointed") and place.step() == "parked"
    place.clear()
    assert place.unpark().returncode == 0
    assert place.all_in(workers, "running")


@pytest.mark.parametrize("action", ["restore", "unlock"])
@pytest.mark.parametrize("fault", ["late", "hang-after"])
def test_the_way_back_counts_whatever_the_tool_said(place, action, fault):
    shell, workers = place.job()
    assert place.park(shell).returncode == 0
    (place.dir / f"fault.{action}.{workers[0]}").write_text(fault)
    assert place.unpark().returncode == 0
    assert place.all_in(workers, "running") and place.step() is None


@pytest.mark.parametrize("fault", ["refuse", "lie", "hang"])
def test_an_unlock_that_fails_is_tried_again(place, fault):
    shell, workers = place.job()
    assert place.park(shell).returncode == 0
    (place.dir / f"once.unlock.{workers[0]}").write_text(fault)
    assert place.unpark().returncode == 0
    assert place.all_in(workers, "running")


def test_a_process_lost_in_the_restore_is_said_and_the_others_run(place):
    shell, workers = place.job()
    assert place.park(shell).returncode == 0
    (place.dir / f"fault.restore.{workers[0]}").write_text("break")
    done = place.unpark()
    assert done.returncode == 125 and "lost" in done.stderr
    assert place.state(workers[1]) == "running" and place.step() is None


def test_it_waits_until_the_memory_is_seen_to_be_free(place):
    shell, workers = place.job(1)
    assert place.park(shell).returncode == 0
    other = place.gpus.load(0, util=0, mem="79GiB")
    done = place.unpark()
    assert done.returncode == 75 and "free" in done.stderr
    place.gpus.fault(0, "unsupported", function="nvmlDeviceGetMemoryInfo")
    place.gpus.fault(0, "unsupported", function="nvmlDeviceGetMemoryInfo_v2")
    done = place.unpark()
    assert done.returncode == 75, done.stderr  # unknown is not free
    assert place.calls("restore") == [] and place.step() == "parked"
    place.gpus.clear()
    waiting = place.gpus.start_lull("unpark", "--wait", "60s")
    other.kill()
    out, err = waiting.communicate(timeout=LIMIT)
    assert waiting.returncode == 0, err
    assert place.all_in(workers, "running")


def test_it_waits_for_the_lease(place):
    shell, workers = place.job(1)
    assert place.park(shell).returncode == 0
    uuid = place.gpus.show()["gpus"][0]["uuid"]
    holder = place.gpus.start_lull("pick", "--gpus", uuid, "--mine-ok", "--", "sleep", "1000")
    leases = place.gpus.folder / "leases"
    wait_until(lambda: holder.poll() is not None or list(leases.glob("GPU-*")), what="the lease")
    assert holder.poll() is None, holder.stderr.read()
    done = place.unpark()
    assert done.returncode == 75 and re.search(r"GPU 0 is leased by \w+ \(sleep 1000\), process \d+", done.stderr), done.stderr
    assert place.calls("restore") == []
    holder.kill()
    holder.wait(timeout=LIMIT)
    assert place.unpark("--wait", "30s").returncode == 0
    assert place.all_in(workers, "running")


def test_the_lease_of_a_parked_job_goes_to_others_and_is_taken_again(place):
    job = place.gpus.start_lull("pick", "--gpus", "0", "--", place.gpus.binary, "sim", "load", "--gpu", "0", "--util", "0",
                                "--mem", ONE_MEMORY)
    wait_until(lambda: job.poll() is not None or place.gpus.holds(job.pid), what="the job")
    leases = place.gpus.folder / "leases"
    assert len(list(leases.glob("GPU-*"))) == 1
    assert place.park(job).returncode == 0
    assert list(leases.glob("GPU-*")) == []
    assert place.unpark().returncode == 0
    assert len(list(leases.glob("GPU-*"))) == 1
    job.kill()
    job.wait(timeout=LIMIT)
    wait_until(lambda: list(leases.glob("GPU-*")) == [], what="the end of the lease")


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_a_waiter_who_does_not_come_for_the_gpu_holds_nobody_up_for_ever(place):
    shell, workers = place.job(1)
    assert place.park(shell).returncode == 0
    leases = place.gpus.folder / "leases"
    assert place.lull("pick", "--gpus", "0", "--mine-ok", "--", "true").returncode == 0  # there is a folder
    uuid = place.gpus.show()["gpus"][0]["uuid"]
    with locked(leases / "ticket.12345.1", ticket(uuid, os.getpid()), user=12345, group=12345, extra_groups=[]):
        done = place.unpark("--wait", "20s")
        assert done.returncode == 0 and place.all_in(workers, "running"), done


def test_a_job_that_was_left_behind_comes_back_under_the_lease_that_it_inherited(place):
    """What its lease says of the holder is of a launcher that has ended."""
    load = f"{place.gpus.binary} sim load --gpu 0 --util 0 --mem {ONE_MEMORY} >/dev/null 2>&1 & echo $!"
    launcher = place.gpus.start_lull("pick", "--gpus", "0", "--", "sh", "-c", load, start_new_session=True)
    pid = int(launcher.stdout.readline())
    try:
        assert launcher.wait(timeout=LIMIT) == 0
        wait_until(lambda: place.gpus.holds(pid), what="the job")
        assert place.lull("park", pid).returncode == 0 and place.state(pid) == "checkpointed"
        assert len(leases_of(place)) == 1  # others may have inherited it as well
        done = place.unpark()
        assert done.returncode == 0 and place.state(pid) == "running", done
        assert len(leases_of(place)) == 1
    finally:
        os.kill(pid, signal.SIGKILL)


def test_a_job_on_a_gpu_that_its_user_holds_comes_back_there(place):
    assert place.lull("pick", "--gpus", "0", "--hold", "10m").returncode == 0
    shell, workers = place.job(1)
    assert place.park(shell).returncode == 0
    done = place.unpark()
    assert done.returncode == 0 and place.all_in(workers, "running"), done
    assert len(leases_of(place)) == 1
    assert place.lull("release", "0").returncode == 0


def test_a_parked_job_that_has_ended_is_forgotten(place):
    shell, workers = place.job(1)
    assert place.park(shell).returncode == 0
    for pid in (shell.pid, *workers):
        os.kill(pid, signal.SIGKILL)
    shell.wait(timeout=LIMIT)
    wait_until(lambda: not alive(workers[0]), what="its end")
    done = place.unpark()
    assert done.returncode == 0 and "has ended" in done.stdout
    assert place.entry_files() == [] and place.calls("restore") == []


def test_a_pid_that_is_another_process_by_now_is_not_touched(place):
    shell, workers = place.job(1)
    assert place.park(shell).returncode == 0
    entry = place.entry_files()[0]
    stranger = place.gpus.start("sleep", "1000")
    text = entry.read_text()
    for pid in workers:
        text = text.replace(f"process: {pid} ", f"process: {stranger.pid} ")
    entry.write_text(text)
    before = len(place.calls())
    assert place.unpark().returncode == 0
    assert len(place.calls()) == before and place.entry_files() == []


def test_of_many_unparks_at_once_one_brings_it_back(place):
    shell, workers = place.job()
    for _ in range(3):
        assert place.park(shell).returncode == 0
        before = len(place.effects())
        racing = [place.gpus.start_lull("unpark", "--limit", place.limits()) for _ in range(8)]
        assert all(one.wait(timeout=LIMIT) in (0, 75, 125) for one in racing), [one.stderr.read() for one in racing]
        assert any(one.returncode == 0 for one in racing), [one.stderr.read() for one in racing]
        assert place.all_in(workers, "running") and place.step() is None
        effects = [(pid, new) for pid, _, new in place.effects()[before:]]
        assert len(effects) == len(set(effects)) == 2 * len(workers), effects


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a pid namespace")
def test_a_lull_in_another_pid_namespace_leaves_what_is_parked_alone(place):
    """As in a container that has the home folder of the host: its numbers are of other processes."""
    shell, workers = place.job()
    assert place.park(shell).returncode == 0
    there = place.gpus.run("unshare", "--pid", "--fork", "--mount-proc", place.gpus.binary, "unpark")
    assert place.step() == "parked" and place.all_in(workers, "checkpointed"), there
    assert place.unpark().returncode == 0 and place.all_in(workers, "running")


def test_a_state_file_that_cannot_be_read_is_left_alone_and_said(place):
    shell, workers = place.job(1)
    assert place.park(shell).returncode == 0
    entry = place.entry_files()[0]
    whole = entry.read_text()
    entry.write_text(whole[:-10])
    done = place.unpark()
    assert done.returncode == 125 and "cannot be read" in done.stderr
    assert entry.exists() and place.calls("restore") == []
    entry.write_text(whole)
    assert place.unpark().returncode == 0


# ---- lull is killed, at every call, before and after its effect

def count_calls(place, shell):
    assert place.park(shell).returncode == 0
    parking = len(place.calls())
    assert place.unpark().returncode == 0
    return parking, len(place.calls())


def reset(place):
    for name in ("calls", "effects", "kill", "killed"):
        (place.dir / name).unlink(missing_ok=True)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("whom", ["lull", "both"])
def test_nothing_stays_locked_when_lull_is_killed_at_any_call(place, when, whom):
    shell, workers = place.job()
    parking, both = count_calls(place, shell)
    for number in range(1, both + 1):
        reset(place)
        (place.dir / "kill").write_text(f"{number} {when} {whom}\n")
        done = place.park(shell)
        if number > parking:
            assert done.returncode == 0, done.stderr
            done = place.unpark()
        assert (place.dir / "killed").exists(), number
        assert done.returncode == -signal.SIGKILL, (number, done)
        if whom == "both" and place.step() is not None:
            place.lull("status")  # any lull repairs it
        wait_until(lambda: place.step() in (None, "parked"), what=f"the repair after call {number}")
        wait_until(lambda: place.all_in(workers, "running") or place.all_in(workers, "checkpointed"), what="one state")
        if place.step() == "parked":
            assert place.unpark("--wait", "30s").returncode == 0
        assert place.all_in(workers, "running") and place.step() is None, number


def leased_job(place):
    job = place.gpus.start_lull("pick", "--gpus", "0", "--", place.gpus.binary, "sim", "load", "--gpu", "0", "--util", "0",
                                "--mem", ONE_MEMORY)
    wait_until(lambda: job.poll() is not None or place.gpus.holds(job.pid), what="the job")
    return job


def leases_of(place):
    return list((place.gpus.folder / "leases").glob("GPU-*"))


def lease_holders(place):
    return processes_of(place.gpus.folder, "lull-leases")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("whom", ["lull", "both"])
def test_a_job_with_a_lease_has_it_again_wherever_unpark_is_killed(place, when, whom):
    job = leased_job(place)
    parking, both = count_calls(place, job)
    for number in range(parking + 1, both + 1):
        reset(place)
        assert place.park(job).returncode == 0
        assert leases_of(place) == [], number
        (place.dir / "kill").write_text(f"{number} {when} {whom}\n")
        assert place.unpark().returncode == -signal.SIGKILL, number
        if whom == "both" and place.step() is not None:
            place.lull("status")  # any lull repairs it
        wait_until(lambda: place.step() in (None, "parked"), what=f"the repair after call {number}")
        if place.step() == "parked":
            assert place.unpark("--wait", "30s").returncode == 0, number
        assert place.state(job) == "running" and place.step() is None, number
        assert len(leases_of(place)) == 1, number
        other = place.lull("pick", "--gpus", "0", "--mine-ok", "--", "true")
        assert other.returncode != 0 and "lease" in other.stderr, (number, other)
    job.kill()
    job.wait(timeout=LIMIT)
    wait_until(lambda: leases_of(place) == [] and lease_holders(place) == [], what="the end of the leases")


@pytest.mark.parametrize("which", [0, 1])
def test_a_leased_job_that_cannot_be_checkpointed_runs_on_under_its_lease(place, which):
    loads = " ".join(f"{place.gpus.binary} sim load --gpu {i} --util 0 --mem {ONE_MEMORY} &" for i in range(2))
    job = place.gpus.start_lull("pick", "-n", "2", "--", "sh", "-c", loads + " wait")
    wait_until(lambda: job.poll() is not None or len(place.workers(job)) == 2, what="the job")
    workers = place.workers(job)
    before = sorted(one.read_text() for one in leases_of(place))
    (place.dir / f"fault.checkpoint.{workers[which]}").write_text("refuse\n")
    done = place.park(job)
    assert done.returncode != 0 and "not all could be checkpointed" in done.stderr, done
    assert place.all_in(workers, "running") and place.step() is None, (done, place.step())
    assert sorted(one.read_text() for one in leases_of(place)) == before, (done, place.calls(), place.effects())
    place.clear()
    assert place.park(job).returncode == 0 and leases_of(place) == []
    assert place.unpark().returncode == 0 and len(leases_of(place)) == 2


def test_a_lease_that_was_not_given_up_yet_is_the_jobs_own(place):
    """`lull park` was killed right before it gave it up."""
    job = leased_job(place)
    lease, = leases_of(place)
    before = lease.read_text()
    id_of = dict(line.split(": ", 1) for line in before.splitlines())["lease"]
    place.fault("unlock", "refuse")  # of a park that fails: the entry stays, and the lease with it
    place.fault("checkpoint", "refuse")
    assert place.park(job).returncode == 125 and place.state(job) == "locked"
    place.clear()
    assert f"given-lease: {id_of} {os.getuid()}" in place.entry_files()[0].read_text()
    (place.dir / f"state.{job.pid}").write_text("checkpointed\n")
    done = place.unpark()
    assert done.returncode == 0 and place.state(job) == "running", done
    assert lease.read_text() == before


def test_waiting_for_memory_leaves_no_lease_and_no_process_behind(place):
    job = leased_job(place)
    assert place.park(job).returncode == 0
    before = len(lease_holders(place))
    other = place.gpus.load(0, util=0, mem="79GiB")
    for _ in range(3):
        done = place.unpark()
        assert done.returncode == 75 and "are needed" in done.stderr, done.stderr
    wait_until(lambda: len(lease_holders(place)) <= before, what="the end of the lease holders")
    assert leases_of(place) == []
    other.kill()
    other.wait(timeout=LIMIT)
    done = place.unpark("--wait", "30s")
    assert done.returncode == 0, done.stderr
    assert len(leases_of(place)) == 1


def test_a_job_that_may_be_on_its_gpus_keeps_its_lease(place):
    job = leased_job(place)
    assert place.park(job).returncode == 0
    place.fault("unlock", "refuse")
    done = place.unpark()
    assert done.returncode == 125 and "may be locked" in done.stderr
    assert place.state(job) == "locked" and len(leases_of(place)) == 1
    place.clear()
    assert place.unpark().returncode == 0
    assert place.state(job) == "running" and len(leases_of(place)) == 1


# ---- by a rule

RULE = ["--every", "100ms", "--delay", "0s", "--idle", "util < 1 for 500ms"]


def start_run(place, *more):
    run = place.gpus.start_lull("run", *RULE, "--warn-by", "none", "--do", "park", *more, "--", place.gpus.binary, "sim", "load",
                                "--gpu", "0", "--util", "0", "--mem", ONE_MEMORY)
    return run


def worker_of(place, run):
    wait_until(lambda: run.poll() is not None or place.calls(), what="a call of the tool")
    assert run.poll() is None, run.stderr.read()
    return int(place.calls()[0][1])


def test_run_parks_an_idle_job_and_watches_it_again_once_it_is_back(place):
    run = start_run(place)
    worker = worker_of(place, run)
    wait_until(lambda: place.step() == "parked", what="the job to be parked")
    assert place.state(worker) == "checkpointed" and alive(worker)
    said = ""
    while "`lull unpark" not in said:
        said += run.stderr.readline()
    place.gpus.set(0, util=90)
    assert place.unpark(str(worker)).returncode == 0
    assert place.state(worker) == "running"
    while "watched again" not in said:
        said += run.stderr.readline()
    place.gpus.set(0, util=0)
    wait_until(lambda: place.state(worker) == "checkpointed", what="it to be parked again")
    os.kill(worker, signal.SIGKILL)
    assert run.wait(timeout=LIMIT) in (-signal.SIGKILL, 137)


@pytest.mark.parametrize("otherwise", ["end", "keep"])
def test_run_ends_or_keeps_a_job_that_cannot_be_parked(place, otherwise):
    place.fault("lock", "refuse")
    run = start_run(place, "--park-else", otherwise, "--grace", "5s")
    worker = worker_of(place, run)
    if otherwise == "end":
        assert run.wait(timeout=LIMIT) == 124, run.stderr.read()
        assert not alive(worker)
        return
    said = ""
    while "runs on" not in said:
        said += run.stderr.readline()
    assert alive(worker) and place.state(worker) == "running" and place.step() is None


def test_run_killed_while_the_job_is_parked_leaves_it_to_unpark(place):
    run = start_run(place)
    worker = worker_of(place, run)
    wait_until(lambda: place.step() == "parked", what="the job to be parked")
    run.kill()
    run.wait(timeout=LIMIT)
    assert place.step() == "parked"
    assert place.unpark().returncode == 0
    assert place.state(worker) == "running"


def test_watch_parks_who_is_idle_alone(place):
    shell, workers = place.job(1)
    busy = place.gpus.start_lull("sim", "load", "--gpu", "1", "--util", "90", "--mem", ONE_MEMORY, start_new_session=True)
    wait_until(lambda: place.gpus.holds(busy.pid), what="the other job")
    watch = place.gpus.start_lull("watch", "--per", "gpu", *RULE, "--do", "park")
    wait_until(lambda: watch.poll() is not None or place.step() == "parked", what="the job to be parked")
    assert watch.poll() is None, watch.stderr.read()
    assert place.state(workers[0]) == "checkpointed" and place.state(busy) == "running"
    watch.kill()


def test_watch_ends_what_it_cannot_park_where_that_was_asked_for(place):
    shell, workers = place.job(1)
    place.fault("checkpoint", "refuse")
    watch = place.gpus.start_lull("watch", "--per", "job", *RULE, "--do", "park", "--park-else", "end")
    wait_until(lambda: watch.poll() is not None or not alive(workers[0]), what="its end")
    assert watch.poll() is None, watch.stderr.read()
    watch.kill()


def test_watch_parks_a_process_by_its_number(place):
    load = place.gpus.load(0, util=0, mem=ONE_MEMORY)
    done = place.lull("watch", "--gpus", "0", *RULE, "--do", f"park={load.pid}", "--do", "exit=3")
    assert done.returncode == 3, done.stderr
    assert place.state(load) == "checkpointed"


def test_words_about_parking_that_are_wrong_are_refused(place):
    for words, says in ((["run", "--do", "stop", "--", "true"], "end or park"),
                        (["run", "--do", "park", "--restart", "1", "--", "true"], "--restart"),
                        (["run", "--do", "park", "--park-else", "x", "--", "true"], "--park-else"),
                        (["run", "--do", "park", "--cuda-checkpoint", "/nowhere/x", "--", "true"], "/nowhere/x"),
                        (["watch", "--do", "park"], "--per"), (["watch", "--do", "park=x"], "park=PID"),
                        (["fill", "--yield", "park", "--yield-cmd", "x", "--", "true"], "commands"),
                        (["fill", "--yield", "park", "--park-else", "x", "--", "true"], "--park-else")):
        done = place.lull(*words)
        assert done.returncode == 2 and says in done.stderr, (words, done.stderr)


# ---- fill

def start_fill(place, *more):
    fill = place.gpus.start_lull("fill", "--gpus", "0", "--idle", "util < 1 for 300ms", "--every", "100ms", "--confirm", "1s",
                                 "--user-idle", "0", "--yield", "park", *more, "--", place.gpus.binary, "sim", "load", "--gpu", "0",
                                 "--util", "0", "--mem", ONE_MEMORY)
    wait_until(lambda: fill.poll() is not None or place.gpus.show()["gpus"][0]["processes"], what="the filler")
    assert fill.poll() is None, fill.stderr.read()
    return fill, place.gpus.show()["gpus"][0]["processes"][0]["pid"]


def test_a_filler_is_parked_for_somebody_and_comes_back(place):
    fill, filler = start_fill(place)
    other = place.gpus.load(0, util=80, mem="1GiB")
    wait_until(lambda: fill.poll() is not None or place.step() == "parked", what="the filler to be parked")
    assert place.state(filler) == "checkpointed" and alive(filler)
    other.kill()
    other.wait(timeout=LIMIT)
    wait_until(lambda: place.state(filler) == "running" and place.step() is None, what="the filler to come back")
    assert alive(filler)
    fill.send_signal(signal.SIGTERM)
    fill.wait(timeout=LIMIT)
    wait_until(lambda: not alive(filler), what="the end of the filler")


@pytest.mark.parametrize("otherwise", ["end", "keep"])
def test_a_filler_that_cannot_be_parked_is_paused_or_ended(place, otherwise):
    place.fault("lock", "refuse")
    fill, filler = start_fill(place, "--park-else", otherwise)
    place.gpus.load(0, util=80, mem="1GiB")
    if otherwise == "end":
        wait_until(lambda: not alive(filler), what="the end of the filler")
        return
    wait_until(lambda: place.calls("lock") and "paused" in place.lull("fill", "--status").stdout, what="the filler to be paused")
    assert alive(filler) and place.state(filler) == "running"
    fill.send_signal(signal.SIGTERM)
    fill.wait(timeout=LIMIT)
