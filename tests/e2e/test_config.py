"""Settings in files and variables: which one wins, where each came from, mistakes, and files that must not lead us."""
import json
import os
import signal

import pytest
from conftest import LIMIT, clean_environment, read_until


@pytest.fixture
def config(tmp_path):
    """Writes a file of settings and gives the environment that names it."""
    def write(text, mode=0o600):
        file = tmp_path / "lull.toml"
        file.write_text(text)
        file.chmod(mode)
        return {"LULL_CONFIG": str(file)}
    return write


def test_says_what_is_in_force_and_where_it_came_from(run_lull, config):
    env = config('grace = "30s"\nidle = "server"\n[rules]\nserver = "util < 1 for 2h"\n')
    done = run_lull("config", env=clean_environment(**env, LULL_GRACE="1m", LULL_NOTIFY_ADDRESS="https://x.example/SECRET"))
    assert done.returncode == 0, done.stderr
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line}
    assert lines["grace"].split()[1:] == ["1m", "LULL_GRACE"]
    assert lines["idle"].endswith("lull.toml:2:8") and "server" in lines["idle"]
    assert "util < 1 for 2h" in lines["rules.server"] and lines["rules.server"].endswith("lull.toml:4:10")
    assert "built in" in lines["warn_by"] and "SECRET" not in done.stdout + done.stderr
    done = run_lull("config", "--json", env=clean_environment(**env))
    found = json.loads(done.stdout)
    assert {"name": "server", "rule": "util < 1 for 2h", "from": f"{env['LULL_CONFIG']}:4:10"} in found["rules"]
    assert next(one for one in found["settings"] if one["name"] == "grace")["value"] == "30s"


@pytest.mark.parametrize("command", [["config"], ["run", "--", "true"], ["watch", "--do", "exit"], ["check", "idle"]])
def test_mistake_has_file_line_column_and_the_right_word(run_lull, config, command):
    env = config('price = 2\ngrase = "30s"\n')
    done = run_lull(*command, env=clean_environment(**env))
    assert done.returncode == 2 and done.stdout == ""
    assert f"{env['LULL_CONFIG']}:2:1: there is no setting 'grase'; did you mean 'grace'?" in done.stderr
    assert run_lull("run", "--help", env=clean_environment(**env)).returncode == 0


def test_named_file_must_be_there_and_ours(run_lull, config, tmp_path):
    done = run_lull("config", env=clean_environment(LULL_CONFIG=tmp_path / "none.toml"))
    assert done.returncode == 2 and "not there" in done.stderr
    done = run_lull("config", env=clean_environment(**config('grace = "30s"\n', mode=0o666)))
    assert done.returncode == 2 and "written by everybody" in done.stderr
    assert run_lull("config", env=clean_environment(LULL_CONFIG="")).returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_root_does_not_read_the_file_of_the_home_that_was_kept(run_lull, tmp_path):
    folder = tmp_path / ".config" / "lull"
    folder.mkdir(parents=True)
    (folder / "lull.toml").write_text('on_idle = "touch owned"\n')
    environment = clean_environment(HOME=tmp_path, XDG_CONFIG_HOME=tmp_path / ".config")
    del environment["LULL_CONFIG"]
    done = run_lull("config", env=environment)
    assert done.returncode == 0 and "owned" not in done.stdout and str(folder) not in done.stdout


def test_named_rules_in_commands(sim, config):
    with sim(1) as gpus:
        done = gpus.lull("check", "hung")
        assert done.returncode == 0 and "any(util) >= 95" in done.stdout
        done = gpus.lull("check", "hnug")
        assert done.returncode == 2 and "did you mean 'hung'?" in done.stderr
        env = config('idle = "quick"\ngrace = "1s"\nwarn_by = "none"\n[rules]\nquick = "util < 1 for 500ms"\n')
        done = gpus.lull("run", "--gpus", "all", "--every", "50ms", "--delay", "0s", "--", "sleep", "60", env=env)
        assert done.returncode == 124, done.stderr
        assert "watching: util < 1 for 500ms (quick, " in done.stderr and "warns" not in done.stderr
        assert "SIGKILL to what is left after 1s" in done.stderr
        done = gpus.lull("watch", "--every", "50ms", "--idle", "quick", "--do", "exit=5", env=env)
        assert done.returncode == 5 and "watching: util < 1 for 500ms (quick, " in done.stderr


def test_run_warns_by_hung_and_ends_nothing(sim):
    rule = "util >= 95 and power < 35% for 500ms"
    with sim("1xH100") as gpus:
        gpus.set(0, util=100, power=100)
        job = gpus.start_lull("run", "--gpus", "all", "--every", "50ms", "--delay", "0s", "--warn-by", rule, "--",
                              "sleep", "1000")
        said = read_until(job.stderr, "nothing is ended")
        assert f"; warns when `{rule}` holds\n" in said and f"`{rule}` has held" in said
        assert job.poll() is None
        job.send_signal(signal.SIGTERM)
        assert job.wait(timeout=LIMIT) == -signal.SIGTERM


def test_run_says_what_it_judges_by(sim):
    with sim(1) as gpus:
        done = gpus.lull("run", "--", "true")
        assert done.returncode == 0
        assert "watching: util < 1 for 30m (idle); judged after 1m, sampled every 5s; warns of hangs\n" in done.stderr
        assert gpus.lull("run", "-q", "--", "true").stderr == ""


def test_where_it_comes_from_stands_in_one_column(run_lull):
    done = run_lull("config")
    places = {line.index("built in") for line in done.stdout.splitlines() if line.endswith("built in")}
    assert len(places) == 1, done.stdout
