"""Every command of README.md is run, on simulated GPUs, and its picture made anew.

What would take hours or go on for ever is run until it says that it has begun; what would do something to the machine gets
--dry-run; programs that a reader has and a test has not (python, train.py's work) are stand-ins.
"""
import os
import re
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

import pytest

from conftest import LIMIT, ROOT, build_dir, clean_environment, end

README = (ROOT / "README.md").read_text()
GOES_ON = re.compile(r"lull (watch|fill|serve) (?!--status)")
STATUSES = {  # where the README's words let something else than 0 be expected
    "lull keep": 1,  # nobody watches
    "lull fill --status": 1,  # nobody fills
    "lull run --gpus 0 --idle": 124,
}


def commands(language):
    """The commands of the README's blocks of this language, those that build or test lull left out."""
    found = []
    for block in re.findall(rf"^```{language}\n(.*?)^```", README, re.M | re.S):
        lines = block.splitlines()
        if language == "console":
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        found += [line for line in lines if not line.startswith(("./run", "./test"))]
    return found


@pytest.fixture
def reader(sim, tmp_path, programs):
    """Runs a command as somebody who reads along would, in one folder."""
    programs.add("python")
    programs.add("logger")
    (tmp_path / "background.sh").write_text("#!/bin/sh\nexec sleep 1000\n")
    (tmp_path / "background.sh").chmod(0o755)
    control = tempfile.TemporaryDirectory()  # the name of a socket must be short
    gpus = sim("3xH100,1xT4")
    environment = {"PATH": f"{os.path.dirname(gpus.binary)}:{programs.path}", "LULL_CONTROL": control.name,
                   "SHELL": "/bin/sh"}

    def read(command):
        if command.startswith("lull record"):
            command = re.sub(r" --every \S+|$", " --every 100ms --for 1s", command.removesuffix("&"), count=1)
        command = command.replace("127.0.0.1:9836", "127.0.0.1:0")  # which another run may have
        if "shutdown" in command:
            command += " --dry-run"
        if not GOES_ON.match(command):
            command = command.removesuffix("&").replace("--for 10s", "--for 200ms")
            if "--then" in command:
                command += "--for 200ms"
            done = gpus.run("bash", "-c", command, env=environment, cwd=tmp_path)
            wanted = next((status for start, status in STATUSES.items() if command.startswith(start)), 0)
            assert done.returncode == wanted, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
            return
        process = gpus.start("bash", "-c", "exec " + command, env=environment, cwd=tmp_path, stdout=subprocess.DEVNULL)
        first = process.stderr.readline()
        assert re.search(r"watching|\d+ filler|serving on", first), f"{command}: {first}"
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=LIMIT)
        assert process.returncode in (0, -signal.SIGTERM), f"{command}: {process.returncode}\n{process.stderr.read()}"
        end(process)

    with control:
        yield read


def test_every_command_of_the_recipes_works(reader):
    found = commands("sh")
    assert len(found) >= 12  # a README whose blocks are no longer found would pass
    for command in found:
        reader(command)


def test_every_command_for_those_without_a_gpu_works(reader):
    found = commands("console")
    assert len(found) >= 5
    for command in found:
        reader(command)


def test_the_python_recipe_works(sim):
    module = build_dir() / "python"
    if not any(module.glob("lull/_core*.so")):
        pytest.skip("the Python module is not built")
    (recipe,) = re.findall(r"^```python\n(.*?)^```", README, re.M | re.S)
    done = sim(2).run(sys.executable, "-c", recipe, env={"PYTHONPATH": str(module)})
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1, done.stdout


def test_what_the_readme_names_is_there():
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", README):
        assert (ROOT / link).exists(), link
    for script in re.findall(r"figure_\w+\.py", README):
        assert (ROOT / "bench" / script).exists(), script


def typed(svg):
    """The commands that a picture shows."""
    texts = ("".join(text.itertext()) for text in xml.etree.ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"))
    return [text for text in texts if text.startswith("$ ")]


def test_the_commands_of_the_picture_still_do_what_it_shows(lull, tmp_path):
    made = tmp_path / "picture.svg"
    done = subprocess.run([sys.executable, ROOT / "tools" / "picture", lull, made], env=clean_environment(), capture_output=True,
                          text=True, timeout=LIMIT * 4)
    assert done.returncode == 0, done.stderr
    today = typed(made.read_text())
    assert len(today) == 4, today
    assert typed((ROOT / "docs" / "picture.svg").read_text()) == today, "'tools/picture build/release/lull' makes it anew"
