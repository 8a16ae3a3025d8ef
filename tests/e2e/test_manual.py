"""The manual pages beside the programs: every command has one, and every option of its --help is in it."""
import re
import shutil
import subprocess

import pytest

from conftest import LIMIT, ROOT, build_dir, clean_environment

PAGES = ROOT / "man"
DROP_INS = re.search(r"set\(LULL_DROP_INS ([^)]+)\)", (ROOT / "CMakeLists.txt").read_text())[1].split()
EVERYWHERE = {"-h", "--help"}  # lull(1) has them, for all of its commands


def help_of(*command):
    done = subprocess.run([str(c) for c in command] + ["--help"], capture_output=True, text=True, timeout=LIMIT,
                          env=clean_environment())
    assert done.returncode == 0, command
    return done.stdout


def options_in(text):
    """-x and --words where a line of the help begins with them: behind its indentation, before what explains them."""
    found = set()
    for line in text.splitlines():
        if re.match(r"\s+-", line):
            found |= set(re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", re.split(r"\s{2,}", line.strip())[0]))
    return found


def text_of(page):
    path = PAGES / f"{page}.scd"
    assert path.exists(), f"man/{page}.scd is missing"
    return path.read_text().replace("\\", "")


def missing(options, page):
    text = text_of(page)
    return sorted(option for option in options if not re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", text))


def commands(lull):
    return re.findall(r"^  (\w+) ", help_of(lull), re.M)


def test_options_are_found_in_every_form_of_help():
    text = "usage: x [--not-here]\n\n  -q,--quiet    say --less\n  --gpus LIST\n      --every TIME (with --also)\n  -d, --devices 0,1     only"
    assert options_in(text) == {"-q", "--quiet", "--gpus", "-d", "--devices"} | {"--every", "--also"}


def test_every_command_has_a_page_with_all_its_options(lull):
    checked = 0
    for command in commands(lull):
        options = options_in(help_of(lull, command)) - EVERYWHERE
        page = f"lull-{command}.1"
        assert not missing(options, page), f"lull {command} --help has options that man/{page}.scd has not"
        assert re.search(rf"\*lull {command}\b", text_of("lull.1")), f"lull.1 does not name lull {command}"
        checked += len(options)
    assert checked > 120  # a form of help that is no longer understood would pass


@pytest.mark.parametrize("command,count", [("sim", 7), ("slurm", 5)])
def test_every_part_of_a_command_is_on_its_page(lull, command, count):
    names = re.findall(rf"^  lull {command} (\w+) ", help_of(lull, command), re.M)
    assert len(names) >= count
    for name in names:
        options = options_in(help_of(lull, command, name)) - EVERYWHERE
        assert not missing(options, f"lull-{command}.1"), f"lull {command} {name}"
        assert re.search(rf"lull {command} {name}\b", text_of(f"lull-{command}.1")), name


@pytest.mark.parametrize("name", DROP_INS)
def test_every_drop_in_has_a_page_with_all_its_options(name):
    options = options_in(help_of(build_dir() / name))
    assert len(options) >= 4
    assert not missing(options, f"{name}.1")
    text = text_of(f"{name}.1")
    assert "Takes the place of" in text and "*lull*(1)" in text


def test_pages_name_only_pages_that_are_there():
    for path in PAGES.glob("*.scd"):
        for name, section in re.findall(r"\*((?:lull|gpu)[\w.-]*)\*\((\d)\)", path.read_text()):
            assert (PAGES / f"{name}.{section}.scd").exists(), f"{path.name}: {name}({section})"


def test_pages_are_made_without_rests_of_their_markup():
    scdoc = shutil.which("scdoc")
    if not scdoc:
        pytest.skip("no scdoc")
    for path in sorted(PAGES.glob("*.scd")):
        done = subprocess.run([scdoc], input=path.read_text(), capture_output=True, text=True, timeout=LIMIT)
        assert done.returncode == 0, f"{path.name}: {done.stderr}"
        rests = re.findall(r"(?:^|[\s+(])[_*][A-Za-z]+[_*](?=[\s.,;:)]|$)", re.sub(r"^\.nf.*?^\.fi", "", done.stdout, flags=re.M | re.S), re.M)
        assert not rests, f"{path.name}: {rests}"
