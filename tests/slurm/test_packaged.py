"""What docs/slurm.md asks an administrator to do, with the files that the packages install: the scripts of the Prolog and the
Epilog (all tests here use them), the steps in lull.toml, and the command of lull-slurm.service."""
import pathlib
import re
import shlex
import subprocess

import pytest

from test_agreement import restarted, started

ROOT = pathlib.Path(__file__).resolve().parents[2]
SET_UP = (ROOT / "docs/slurm.md").read_text().partition("## Set up\n")[2].partition("\n## ")[0]


def block(first):
    """The indented lines of the document that begin with this one."""
    found = re.search(rf"(?m)^       {re.escape(first)}.*\n(?:       .*\n)*", SET_UP)
    return re.sub(r"(?m)^       ", "", found[0])


@pytest.fixture
def etc(tmp_path):
    """/etc/lull, as the document has it, with seconds instead of hours."""
    settings = block("[slurm]")
    assert settings.count("1h") == settings.count("2h") == 1, settings
    (tmp_path / "lull.toml").write_text(settings.replace("1h", "1s").replace("2h", "3s"))
    return tmp_path


def start_unit(cluster, nodes, node, etc):
    """As systemd does: the environment of the unit and of its file, and the command without a shell of its own."""
    lines = [line.partition("=") for line in cluster.packaged("systemd/lull-slurm.service.in").splitlines()]
    of = {name: [value for key, _, value in lines if key == name] for name in ("Environment", "EnvironmentFile", "ExecStart")}
    assert of["EnvironmentFile"] == ["-/etc/lull/slurm.conf"]
    env = dict(shlex.split(value)[0].split("=", 1) for value in of["Environment"])
    if (etc / "slurm.conf").exists():
        env.update(shlex.split(line)[0].split("=", 1) for line in (etc / "slurm.conf").read_text().splitlines())
    env.update(SLURM_CONF=cluster.env["SLURM_CONF"], PATH=cluster.env["PATH"], SLURMD_NODENAME=node, LULL_CONFIG=etc / "lull.toml")
    (command,) = of["ExecStart"]
    nodes.watchers[node] = nodes.gpus[node].start(*shlex.split(command), env={key: str(value) for key, value in env.items()})
    return nodes.said(node, "watching each job")


def test_slurm_runs_the_scripts_that_the_document_names(cluster):
    config = cluster.ask("scontrol", "show", "config")
    for line in block("Prolog=").splitlines():
        name, _, value = line.partition("=")
        set_to = re.search(rf"(?m)^{name}\s+= (.*)", config)[1].strip()
        if name == "PrologFlags":
            assert set_to == value
            continue
        where = value.replace("/usr/libexec", "@CMAKE_INSTALL_FULL_LIBEXECDIR@")
        packaged = (ROOT / f"packaging/slurm/{name.lower()}.in").read_text()
        assert f"# For slurm.conf: {name}={where}\n" in packaged
        assert pathlib.Path(set_to).read_text() == cluster.packaged(f"slurm/{name.lower()}.in")


def test_the_unit_watches_by_the_steps_of_lull_toml_first_as_a_dry_run(cluster, nodes, etc):
    job = cluster.submit(nodes=2)
    first, second = started(cluster, job, 2)
    for node in (first, second):
        said = start_unit(cluster, nodes, node, etc)
        assert "dry run, would then comment" in said and "dry run, would then requeue" in said, said
    nodes.idle()
    nodes.said(first, "dry run: would requeue")
    assert cluster.state(job) == "RUNNING" and "AdminComment" not in cluster.run("scontrol", "show", "job", job).stdout
    for node in (first, second):
        nodes.watchers[node].terminate()
        nodes.watchers[node].wait()
    act = block("echo ").splitlines()[0]
    subprocess.run(["sh", "-c", act.replace("/etc/lull/slurm.conf", shlex.quote(str(etc / "slurm.conf")))], check=True)
    for node in (first, second):
        assert "dry run" not in start_unit(cluster, nodes, node, etc)
    restarted(cluster, job)
    # On a busy machine both steps are due at the same sample.
    assert re.search("lull: util < 1 for [13]s held for", cluster.run("scontrol", "show", "job", job).stdout)
