"""`lull watch --per gpu|job`: real processes of two users on simulated GPUs, each judged and acted on by itself."""
import fcntl
import json
import os
import pty
import signal
import subprocess
import termios

import pytest
from conftest import LIMIT, alive, read_until, wait_until

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="needs processes of two users")
QUICK = ["--every", "50ms"]
RULE = ["--idle", "util < 1 for 700ms"]
ADA, BOB = 12345, 12346


def load_as(gpus, gpu, util, uid=None):
    """A process of another user that holds a GPU."""
    who = {} if uid is None else {"user": uid, "group": uid, "extra_groups": []}
    process = gpus.start(gpus.binary, "sim", "load", "--gpu", gpu, "--util", util, start_new_session=True, **who)
    count = len(str(gpu).split(","))
    wait_until(lambda: process.poll() is not None or gpus.holds(process.pid) == count, what="the load")
    assert process.poll() is None, process.stderr.read()
    return process


@pytest.fixture
def shared(sim, tmp_path_factory):
    """GPUs that other users get to as well."""
    def start(count):
        gpus = sim(count)
        for folder in (gpus.folder, *gpus.folder.rglob("*")):
            folder.chmod(folder.stat().st_mode | (0o1077 if folder.is_dir() else 0o066))
        control = tmp_path_factory.mktemp("control")
        for one in (control, *control.parents):
            if "pytest" in str(one):
                one.chmod(0o755)
        control.chmod(0o1777)
        gpus.env["LULL_CONTROL"] = str(control)
        return gpus
    return start


def stop(watch):
    watch.send_signal(signal.SIGTERM)
    rest = watch.stderr.read()
    assert watch.wait(timeout=LIMIT) == -signal.SIGTERM
    return rest


@ROOT_ONLY
def test_only_the_idle_one_is_ended_and_the_user_who_is_left_out_stays(shared):
    gpus = shared(4)
    idle, busy = load_as(gpus, 0, 0, ADA), load_as(gpus, 1, 90, ADA)
    both, excepted = load_as(gpus, "2", 0, BOB), load_as(gpus, 3, 0, 0)
    watch = gpus.start_lull("watch", *QUICK, *RULE, "--per", "job", "--do", "kill=holders", "--except-user", "root")
    said = ""
    while idle.poll() is None or both.poll() is None:
        said += watch.stderr.readline()
    assert idle.wait(timeout=LIMIT) in (-15, 143) and both.wait(timeout=LIMIT) in (-15, 143)
    assert busy.poll() is None and excepted.poll() is None
    said += stop(watch)
    assert f"SIGTERM to lull {idle.pid} of {ADA}" in said and f"lull {excepted.pid} of" not in said
    assert "kill=holders; except those of root" in said
    assert busy.poll() is None and excepted.poll() is None


@ROOT_ONLY
def test_of_two_jobs_on_a_card_only_the_one_that_does_nothing_itself_is_ended(shared):
    gpus = shared(1)
    busy, idle = load_as(gpus, 0, 90, ADA), load_as(gpus, 0, 0, BOB)
    watch = gpus.start_lull("watch", "--every", "500ms", "--idle", "job_util < 1 for 3s", "--per", "job", "--do", "end")
    wait_until(lambda: idle.poll() is not None or watch.poll() is not None, what="the end of the idle job")
    said = stop(watch)
    assert idle.wait(timeout=LIMIT) in (-15, 143), said
    assert busy.poll() is None and "job_util" in said


@ROOT_ONLY
def test_jobs_that_may_have_a_lease_are_not_judged_where_leases_cannot_be_read(shared):
    gpus = shared(1)
    leases = gpus.folder / "leases"
    leases.mkdir(exist_ok=True)
    leases.chmod(0o777)  # anybody may remove them: what is in it is not believed
    idle = load_as(gpus, 0, 0, ADA)
    watch = gpus.start_lull("watch", *QUICK, *RULE, "--per", "job", "--do", "end")
    said = watch.stderr.readline() + watch.stderr.readline()
    assert "leases cannot be read" in said and "not judged" in said
    leases.chmod(0o1777)
    assert idle.wait(timeout=LIMIT) in (-15, 143)
    stop(watch)


@ROOT_ONLY
def test_workers_of_a_script_that_leads_a_terminal_are_one_job(shared):
    """As `tmux new -d "bash train.sh"` and `ssh -t host ./train.sh` start it."""
    gpus = shared(3)
    ours, theirs = pty.openpty()
    workers = " & ".join(f"{gpus.binary} sim load --gpu {gpu} --util {util}" for gpu, util in ((0, 0), (1, 90)))
    launcher = gpus.start("bash", "-c", workers + " & wait", stdin=theirs, start_new_session=True,
                          preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0), user=BOB, group=BOB,
                          extra_groups=[])
    os.close(theirs)
    wait_until(lambda: all(gpu["processes"] for gpu in gpus.show()["gpus"][:2]), what="the workers")
    other = load_as(gpus, 2, 0, ADA)  # is idle no longer than the worker on GPU 0
    watch = gpus.start_lull("watch", *QUICK, *RULE, "--per", "job", "--do", "end")
    assert other.wait(timeout=LIMIT) in (-15, 143)
    said = stop(watch)
    assert f"SIGTERM to lull {other.pid}" in said and said.count("SIGTERM") == 1 and launcher.poll() is None
    os.close(ours)


@ROOT_ONLY
def test_job_that_draws_on_another_gpu_is_not_ended(shared):
    gpus = shared(3)
    workers = (f"{gpus.binary} sim load --gpu 0 --util 0 & {gpus.binary} sim load --gpu 1 --util 90 --graphics")
    job = gpus.start("bash", "-c", workers + "; wait", start_new_session=True, user=BOB, group=BOB, extra_groups=[])
    wait_until(lambda: all(gpu["processes"] for gpu in gpus.show()["gpus"][:2]), what="the workers")
    other = load_as(gpus, 2, 0, ADA)
    watch = gpus.start_lull("watch", *QUICK, *RULE, "--per", "job", "--do", "end")
    assert other.wait(timeout=LIMIT) in (-15, 143)
    assert stop(watch).count("SIGTERM") == 1 and job.poll() is None
    os.killpg(job.pid, signal.SIGTERM)


@ROOT_ONLY
def test_process_on_two_gpus_is_not_ended_for_the_idle_one(shared):
    gpus = shared(2)
    job = load_as(gpus, "0,1", 0, ADA)
    gpus.set(1, util=80)
    watch = gpus.start_lull("watch", *QUICK, *RULE, "--per", "gpu", "--do", "end")
    said = read_until(watch.stderr, "it is not ended")
    assert "may work on GPU 1" in said and job.poll() is None
    stop(watch)
    assert job.poll() is None


def test_hook_is_told_about_its_own_gpu_alone(sim, tmp_path):
    with sim(3) as gpus:
        log = tmp_path / "log"
        job = gpus.load(2, util=0)
        gpus.set(1, util=90)
        watch = gpus.start_lull("watch", *QUICK, *RULE, "--per", "job", "--do",
                                f"exec=echo \"$LULL_GPU|$LULL_GPUS|$LULL_PIDS|$LULL_USERS|$LULL_JOB|$LULL_JOB_ID\" >> {log}")
        read_until(watch.stderr, ": done")
        stop(watch)
        gpu, gpu_list, pids, users, name, number = log.read_text().strip().split("|")
        assert (gpu, gpu_list, pids) == ("2", "2", str(job.pid)) and users and name == f"tree:{number}"


def test_hook_that_says_not_now_is_run_again_and_has_not_failed(sim, tmp_path):
    with sim(1) as gpus:
        log = tmp_path / "log"
        gpus.load(0, util=0)
        watch = gpus.start_lull("watch", *QUICK, *RULE, "--per", "job", "--retry", "0", "--do",
                                f"exec=echo tried >> {log}; test $(wc -l < {log}) -ge 2 || exit 75")
        said = read_until(watch.stderr, ": done")
        stop(watch)
        assert "not now; again in" in said and "failed" not in said and log.read_text() == "tried\ntried\n"


def test_hook_that_says_not_now_is_not_run_again_for_a_job_that_works(sim, tmp_path):
    with sim(1) as gpus:
        log = tmp_path / "log"
        gpus.load(0, util=0)
        watch = gpus.start_lull("watch", *QUICK, *RULE, "--per", "job", "--do", f"exec=echo tried >> {log}; exit 75")
        read_until(watch.stderr, "not now")
        gpus.set(0, util=90)
        read_until(watch.stderr, "called off")
        stop(watch)
        assert log.read_text() == "tried\n"


def test_steps_and_dry_run(sim, tmp_path):
    with sim(1) as gpus:
        job = gpus.load(0, util=0)
        log = tmp_path / "log"
        ladder = ["--per", "job", "--step", f"util < 1 for 300ms: exec=echo warned >> {log}",
                  "--step", "util < 1 for 1500ms: end"]
        watch = gpus.start_lull("watch", *QUICK, *ladder, "--dry-run")
        said = read_until(watch.stderr, "dry run: would end")
        assert stop(watch) is not None and job.poll() is None and not log.exists() and "would run echo warned" in said
        watch = gpus.start_lull("watch", *QUICK, *ladder)
        assert job.wait(timeout=LIMIT) in (-15, 143)
        assert log.read_text() == "warned\n"
        stop(watch)


@ROOT_ONLY
def test_keep_by_its_owner_and_root_only(shared):
    gpus = shared(2)
    ada, bob = load_as(gpus, 0, 0, ADA), load_as(gpus, 1, 0, BOB)
    watch = gpus.start_lull("watch", *QUICK, "--idle", "util < 1 for 8s", "--per", "gpu", "--do", "end",
                            "--keep-at-most", "1h")
    read_until(watch.stderr, "watching each GPU")

    def keep(uid, *words):
        return gpus.lull("keep", *words, user=uid, group=uid, extra_groups=[])

    wait_until(lambda: "nobody watches" not in keep(ADA, "gpu1", "1s").stderr)
    wait_until(lambda: keep(ADA, "4h").returncode == 0)
    refused = keep(ADA, "1", "4h")
    assert refused.returncode == 1 and "only its owner and root" in refused.stdout
    given = keep(ADA, "gpu0", "4h")
    assert given.returncode == 0 and "kept: GPU 0 for" in given.stdout and "(--keep-at-most)" in given.stdout
    assert bob.wait(timeout=LIMIT) in (-15, 143)
    assert ada.poll() is None
    said = stop(watch)
    assert f"(uid {ADA}) keeps GPU 0" in said
    assert keep(ADA, "4h").returncode == 1 and "nobody watches" in keep(ADA, "4h").stderr


@pytest.mark.parametrize("arguments, said", [
    (["--do", "end"], "needs --per"),
    (["--do", "kill=holders"], "needs --per"),
    (["--do", "exec=x", "--hours", "20-08"], "--hours needs --per"),
    (["--per", "gpus", "--do", "end"], "gpu or job would be right"),
    (["--per", "gpu", "--do", "shutdown"], "not about one GPU"),
    (["--per", "gpu", "--do", "end", "--hours", "20"], "20-08"),
    (["--per", "gpu", "--do", "end", "--only-user", "nosuchuser"], "there is no user 'nosuchuser'"),
    (["--per", "gpu", "--step", "util < 1 for 5m"], "such as"),
    (["--per", "gpu", "--step", "utl < 1 for 5m: end"], "util"),
    (["--per", "gpu", "--step", "idle: edn"], "did you mean 'end'"),
    (["--per", "gpu", "--step", "idle: end", "--do", "end"], "leave out"),
    (["--per", "job", "--idle", "cpu < 5 for 5m", "--do", "end"], "cannot be judged with --per"),
    (["--per", "job"], "--do"),
])
def test_wrong_command_line(run_lull, arguments, said):
    done = run_lull("watch", *arguments)
    assert done.returncode == 2 and said in done.stderr, done.stderr


@pytest.mark.parametrize("arguments, said", [([], "TIME"), (["soon"], "soon"), (["0s"], "more than 0"),
                                             (["4"], "'4' needs a unit: 4s, 4m or 4h would be right"),
                                             (["a", "b", "4h"], "too many"), (["4h"], "nobody watches")])
def test_wrong_keep(run_lull, tmp_path, arguments, said):
    done = run_lull("keep", *arguments, env={**os.environ, "LULL_CONTROL": str(tmp_path)})
    assert done.returncode == (1 if said == "nobody watches" else 2) and said in done.stderr


def folders_of(evidence):
    return sorted(one for one in evidence.iterdir()) if evidence.exists() else []


def test_evidence_of_each_is_written_before_it_is_ended(shared, tmp_path):
    gpus = shared(2)
    evidence, told = tmp_path / "ev", tmp_path / "told"
    idle, busy = load_as(gpus, 0, 0), load_as(gpus, 1, 90)
    watch = gpus.start_lull("watch", *QUICK, *RULE, "--per", "gpu", "--evidence", evidence,
                            "--do", f'exec=kill -0 {idle.pid} && echo "$LULL_EVIDENCE" >{told}', "--do", "end")
    assert idle.wait(timeout=LIMIT) in (-15, 143)
    said = stop(watch)
    assert busy.poll() is None
    folder, = folders_of(evidence)
    names = {file.name for file in folder.iterdir()}
    assert {"index.html", "utilisation.svg", "readings.csv", "facts.json", f"proc-{idle.pid}.txt"} <= names, names
    assert f"proc-{busy.pid}.txt" not in names
    assert told.read_text().strip() == str(folder / "index.html") and f"evidence is in {folder}/index.html" in said
    assert json.loads((folder / "facts.json").read_text())["gpus"] == ["0"]
    assert "a debugger would stop" in (folder / "stacks-missing.txt").read_text()
    assert folder.stat().st_mode & 0o777 == 0o700


def test_evidence_that_cannot_be_written_saves_nobody_and_is_said(shared, tmp_path):
    gpus = shared(1)
    (tmp_path / "ev").mkdir()
    idle = load_as(gpus, 0, 0)
    watch = gpus.start_lull("watch", *QUICK, *RULE, "--per", "gpu", "--evidence", tmp_path / "ev", "--do", "end")
    read_until(watch.stderr, "each GPU")
    (tmp_path / "ev").rmdir()
    assert idle.wait(timeout=LIMIT) in (-15, 143)
    assert "no evidence could be written" in stop(watch)


def test_a_dry_run_writes_no_evidence(shared, tmp_path):
    gpus = shared(1)
    load_as(gpus, 0, 0)
    watch = gpus.start_lull("watch", *QUICK, *RULE, "--per", "job", "--evidence", tmp_path / "ev", "--do", "end", "--dry-run")
    read_until(watch.stderr, "would")
    stop(watch)
    assert folders_of(tmp_path / "ev") == []
