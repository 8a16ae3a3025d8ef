"""`mail` as an action: a stand-in for sendmail gets the message, and what fails is said and holds nothing up."""
import email
import email.policy
import os
import pwd
import re
import xml.etree.ElementTree as xml

import pytest
from conftest import lines_in, read_until, slurm_gpus, squeue_row, wait_until

QUICK = ["--every", "50ms"]
RULE = "util < 1 for 500ms"
ME = pwd.getpwuid(os.geteuid()).pw_name


@pytest.fixture
def mailer(programs, tmp_path):
    """A sendmail that keeps what it gets."""
    box = tmp_path / "box"

    def add(script="true", name="sendmail"):
        programs.add(name, f"cat > {box}.new && mv {box}.new {box}; {script}")
        return programs

    add.box = box
    return add


def watch(gpus, programs, *args):
    watching = gpus.start_lull("watch", *QUICK, *args, env={"PATH": programs.path})
    read_until(watching.stderr, "watching")
    return watching


def test_the_user_of_the_job_gets_all_there_is_to_know_with_a_picture(sim, mailer):
    gpus = sim(2)
    job = gpus.load("0,1", 0)
    programs = mailer()
    watching = watch(gpus, programs, "--per", "job", "--step", f"{RULE}: mail", "--step", "util < 1 for 1h: end")
    wait_until(mailer.box.exists, what="the mail")
    read_until(watching.stderr, ": done")
    assert programs.calls() == ["sendmail -t -i"]
    message = email.message_from_bytes(mailer.box.read_bytes(), policy=email.policy.default)
    assert message["To"] == ME and message["Subject"].startswith("lull: tree:") and message["Auto-Submitted"]
    text = message.get_body().get_content()
    for part in (os.uname().nodename, RULE, "0, 1", "Since:", f"lull {job.pid} of {ME}", "end in ", f"lull keep {job.pid} 4h"):
        assert part in text, text
    (picture,) = message.iter_attachments()
    assert picture.get_content_type() == "image/svg+xml" and picture.get_filename() == "utilisation.svg"
    svg = xml.fromstring(picture.get_content())
    words = [node.text for node in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert "GPU 0" in words and "GPU 1" in words


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's allocation files count")
def test_the_owner_of_a_slurm_job_is_told_how_to_keep_it_from_anywhere(sim, mailer, tmp_path):
    gpus = sim(1)
    programs = mailer()
    for name in ("scancel", "srun", "runuser"):
        programs.add(name)
    programs.add("scontrol", "printf 'JobId=22\\n   StartTime=1\\n   SuspendTime=None\\n     Nodes=gpu1 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0)\\n'")
    programs.add("squeue", f'''case "$*" in *--format*) echo '22 (null)';; *) echo '{squeue_row(uid=12345)}';; esac''')
    env = {"LULL_SLURM_DIR": str(tmp_path / "run"), "SLURMD_NODENAME": "gpu1", **slurm_gpus(programs, tmp_path / "slurm", 1)}
    done = gpus.lull("slurm", "prolog", env={**env, "SLURM_JOB_ID": "22", "SLURM_JOB_UID": "12345", "SLURM_JOB_USER": "ada",
                                             "SLURM_JOB_GPUS": "0", "SLURM_NODELIST": "gpu1", "SLURM_JOB_RESTART_COUNT": "0"})
    assert done.stderr == ""
    gpus.env.update(env)
    watch(gpus, programs, "--per", "job", "--slurm", "--step", f"{RULE}: mail")
    wait_until(mailer.box.exists, what="the mail")
    message = email.message_from_bytes(mailer.box.read_bytes(), policy=email.policy.default)
    assert message["To"] == "ada" and "lull keep slurm:22 4h" in message.get_body().get_content()


def test_a_mailer_that_fails_or_hangs_is_said_and_what_follows_is_done(sim, mailer, tmp_path):
    for script, said in (("echo 'no such user' >&2; exit 67", "no such user"), ("sleep 1000", "not done after 1s")):
        gpus = sim(1)
        gpus.load(0, 0)
        log = tmp_path / "log"
        watching = watch(gpus, mailer(script), "--per", "job", "--idle", RULE, "--do", "mail", "--do", f"exec=echo done > {log}",
                         "--retry", "0", "--limit", "1s")
        text = read_until(watching.stderr, "mail")
        wait_until(lambda: lines_in(log) == ["done"], what="the next action")
        text += read_until(watching.stderr, "not all of it was done")
        assert said in text, text
        log.unlink()
        gpus.close()


def test_mail_is_used_where_there_is_no_sendmail(sim, mailer):
    if any(os.access(path, os.X_OK) for path in ("/usr/sbin/sendmail", "/usr/lib/sendmail")):
        pytest.skip("there is a sendmail")
    gpus = sim(1)
    job = gpus.load(0, 0)
    programs = mailer(name="mail")
    watch(gpus, programs, "--per", "gpu", "--idle", RULE, "--do", "mail=admin@example.org")
    wait_until(mailer.box.exists, what="the mail")
    (call,) = programs.calls()
    assert re.fullmatch(r"mail -s lull: GPU 0 on \S+ is idle admin@example.org", call), call
    assert f"lull {job.pid} of" in mailer.box.read_text()


def test_without_a_mailer_nothing_is_watched(sim, programs):
    if any(os.access(path, os.X_OK) for path in ("/usr/sbin/sendmail", "/usr/lib/sendmail")):
        pytest.skip("there is a sendmail")
    gpus = sim(1)
    done = gpus.lull("watch", "--per", "job", "--do", "mail", env={"PATH": programs.alone})
    assert done.returncode == 125 and "sendmail" in done.stderr and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize("args", [["--do", "mail"], ["--per", "job", "--do", "mail="], ["--per", "job", "--do", "mail=-t"],
                                  ["--per", "job", "--do", "mail=a b"], ["--do", "mail=a,,b"], ["--do", "mial"]])
def test_what_is_no_address_is_refused(run_lull, args):
    done = run_lull("watch", *args)
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1 and "mail" in done.stderr, done.stderr


def test_evidence_has_the_picture(sim, tmp_path):
    gpus = sim(2)
    done = gpus.run_idle_once((tmp_path / "ready").exists, gpus.binary, "run", *QUICK, "--delay", "0s", "--gpus", "all", "--idle", RULE, "--evidence",
                              tmp_path / "evidence", "--", "sh", "-c", f"touch {tmp_path}/ready; exec sleep 1000")
    assert done.returncode == 124, done.stderr
    (folder,) = (tmp_path / "evidence").iterdir()
    text = (folder / "utilisation.svg").read_text()
    words = [node.text for node in xml.fromstring(text).iter("{http://www.w3.org/2000/svg}text")]
    assert "GPU 0" in words and "GPU 1" in words and any(RULE in word for word in words)
    assert "util" in words and "power" in words
    assert text.count("http") == 1  # the name of its format: it needs nothing from anywhere
