"""What bash, fish and zsh really offer for lull: each completes among the same simulated GPUs."""
import os
import shlex
import shutil
import subprocess
import tempfile

import pytest

from conftest import ROOT, wait_until

FOLDER = ROOT / "packaging" / "completions"


class Shell:
    def __init__(self, gpus, folder):
        if not shutil.which(self.name):
            pytest.skip(f"no {self.name}")
        self.gpus, self.folder = gpus, folder
        self.env = {"PATH": f"{os.path.dirname(gpus.binary)}:{os.environ['PATH']}", "HOME": str(folder), "LANG": "C.UTF-8",
                    "XDG_CONFIG_HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CACHE_HOME": str(folder)}

    def close(self):
        pass

    def run(self, *command):
        done = self.gpus.run(*command, env=self.env, cwd=self.folder)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()


class Bash(Shell):
    name = "bash"

    def offers(self, line, *_):
        words = line.replace("=", " = ").split(" ") if "=" in line else line.split(" ")  # as readline breaks them
        words = words[:-1] if line.endswith("=") else words
        quoted = " ".join(shlex.quote(word) for word in words)
        return self.run("bash", "-c", f". {FOLDER}/lull.bash; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _lull; "
                        'printf "%s\\n" "${COMPREPLY[@]}"')


class Fish(Shell):
    name = "fish"

    def offers(self, line, *_):
        return [found.split("\t")[0] for found in
                self.run("fish", "--no-config", "-c", f"source {FOLDER}/lull.fish; complete -C {shlex.quote(line)}")]


class Zsh(Shell):
    """zsh completes in a terminal only: tmux has one."""
    name = "zsh"

    def __init__(self, gpus, folder):
        super().__init__(gpus, folder)
        (folder / ".zshrc").write_text(f"PS1='ready> '; fpath=({FOLDER} $fpath); autoload -Uz compinit; compinit -u -d {folder}/dump\n"
                                       "LISTMAX=0; setopt no_list_ambiguous list_rows_first; zstyle ':completion:*' list-grouped no\n")
        self.short = tempfile.TemporaryDirectory()  # the name of a socket must be short
        self.tmux("new-session", "-d", "-x", "200", "-y", "60", "env", f"ZDOTDIR={folder}", "zsh", "-i")
        wait_until(lambda: self.screen() == "ready>", what="zsh's prompt")

    def tmux(self, *words):
        return subprocess.run(["tmux", "-S", f"{self.short.name}/tmux", "-f", "/dev/null", *words], check=True, capture_output=True, text=True,
                              env={**self.gpus.env, **self.env}, cwd=self.folder).stdout

    def screen(self):
        return self.tmux("capture-pane", "-p").strip()

    def offers(self, line, wanted):
        """What stands on the screen once the wanted word does: a single offer is filled in, several are listed."""
        self.tmux("send-keys", "-l", line)
        wait_until(lambda: self.screen().endswith(line.rstrip()), what=f"{line!r} on the screen")
        self.tmux("send-keys", "Tab")
        typed = len(line.split())  # a word of these may be completed in its place
        def found():
            first, *rest = (self.screen() + "\n").split("\n")
            words = first.split()[1:]
            return [word for word in words[typed - (0 if line.endswith(" ") else 1):]] + [row.split()[0] for row in rest if row.split()]
        try:
            wait_until(lambda: wanted in found(), what=f"{wanted!r} among {found()}")
            return found()
        finally:
            self.tmux("send-keys", "C-u", "C-l")
            wait_until(lambda: self.screen() == "ready>", what="an empty screen")

    def close(self):
        self.tmux("kill-server")
        self.short.cleanup()


@pytest.fixture(params=[Bash, Fish, Zsh], ids=lambda kind: kind.name)
def shell(request, sim, tmp_path):
    gpus = sim("1xH100,1xT4")
    folder = tmp_path / "home"
    folder.mkdir()
    one = request.param(gpus, folder)
    yield one
    one.close()


def test_shells_offer_what_is_there(shell):
    job = str(shell.gpus.load(1, util=50).pid)
    held = shell.gpus.lull("pick", "--gpus", "0", "--hold-pid", os.getpid())
    assert held.returncode == 0, held.stderr
    (shell.folder / "week.csv").touch()
    for line, wanted in (
            ("lull sta", "status"),  # commands
            ("lull help sta", "status"),
            ("lull run --requ", "--require-gpu"),  # options
            ("lull pick --mem-", "--mem-free"),
            ("lull status --gpus ", "1"),  # GPUs
            ("lull run --idle ", "util"),  # signals
            ("lull run --idle h", "hung"),  # rules
            ("lull check h", "hung"),
            ("lull keep ", job),  # jobs
            ("lull run --also ", job),
            ("lull release ", "0"),  # leases
            ("lull watch --do shut", "shutdown"),  # actions
            ("lull watch --do en", "end"),
            ("lull sim fa", "fault"),
            ("lull slurm pro", "prolog"),
            ("lull replay we", "week.csv"),
            ("lull run -- cat we", "week.csv"),  # another command, with its own
            ("lull pick --best c", "cool"),  # values of options
            ("lull pick --format d", "docker"),
            ("lull pick --vendor a", "amd"),
            ("lull watch --per j", "job"),
            ("lull run --signal HU", "HUP"),
            ("lull watch --except-user roo", "root"),
            ("lull fill --yield pa", "pause"),
            ("lull record --format nd", "ndjson"),
            ("lull run --evidence we", "week.csv"),
            ("lull sim load --uti", "--util"),
    ):
        offered = shell.offers(line, wanted)
        assert wanted in offered, f"{line!r}: {offered}"


def test_an_option_of_another_command_is_not_offered(shell):
    offered = shell.offers("lull pick --", "--mem-free")
    assert "--mem-free" in offered and "--idle" not in offered and "--also" not in offered


def test_no_files_where_a_value_is_meant(shell):
    (shell.folder / "job").mkdir()
    (shell.folder / "TERM.txt").touch()
    for line, wanted, never in (("lull pick --best ", "cool", "job"), ("lull watch --per ", "gpu", "TERM.txt"),
                                ("lull run --signal TER", "TERM", "TERM.txt")):
        offered = shell.offers(line, wanted)
        assert wanted in offered and never not in offered, f"{line!r}: {offered}"


class Terminal:
    """A shell on a terminal of tmux, as a person has it."""

    def __init__(self, shell, *command):
        self.shell, self.short = shell, tempfile.TemporaryDirectory()
        self.tmux("new-session", "-d", "-x", "300", "-y", "60", *command)
        wait_until(lambda: self.screen().endswith("ready>"), what="a prompt")

    def tmux(self, *words):
        return subprocess.run(["tmux", "-S", f"{self.short.name}/tmux", "-f", "/dev/null", *words], check=True, capture_output=True,
                              text=True, env={**self.shell.gpus.env, **self.shell.env}, cwd=self.shell.folder).stdout

    def screen(self):
        return self.tmux("capture-pane", "-p").strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.tmux("kill-server")
        self.short.cleanup()


@pytest.fixture
def bash(sim, tmp_path):
    folder = tmp_path / "home"
    folder.mkdir()
    shell = Bash(sim(1), folder)
    (folder / "rc").write_text(f"PS1='ready> '; . {FOLDER}/lull.bash\n")
    (folder / "run").mkdir()
    (folder / "report").mkdir()
    with Terminal(shell, "bash", "--noprofile", "--rcfile", str(folder / "rc"), "-i") as terminal:
        yield terminal


@pytest.mark.parametrize("typed, becomes", [("lull ru", "lull run"), ("lull repo", "lull report"), ("lull run --evidence ru", "lull run --evidence run/"),
                                            ("lull pick --best=co", "lull pick --best=cool")])
def test_a_command_is_no_folder_of_its_name(bash, typed, becomes):
    """Beside a folder run/, `lull ru<Tab>` became `lull run/`."""
    bash.tmux("send-keys", "-l", typed)
    wait_until(lambda: bash.screen().endswith(typed), what="what was typed")
    bash.tmux("send-keys", "Tab")
    wait_until(lambda: not bash.screen().endswith(typed), what="a completion")
    bash.tmux("send-keys", "-l", "!")  # behind the blank that follows a word, or the slash that follows a folder
    wait_until(lambda: bash.screen().endswith("!"), what="the next letter")
    assert bash.screen().split("ready> ")[-1] in (becomes + " !", becomes + "!"), bash.screen()
    if not becomes.endswith("/"):
        assert "/" not in bash.screen().split("ready> ")[-1]


def test_descriptions_are_whole(sim, lull):
    """Zsh and fish showed what stands on the first line of --help."""
    with sim(1) as gpus:
        offered = dict(line.split("\t", 1) for line in gpus.lull("__complete", "options", "run").stdout.splitlines())
    assert offered["--on-idle"].endswith("(default: nothing)") and len(offered["--on-idle"]) > 80
    assert offered["--gpus"].count("(") == offered["--gpus"].count(")")


@pytest.mark.parametrize("prefix", ["--on", "--re", "--d"])
def test_zsh_shows_descriptions_whole(sim, tmp_path, prefix):
    """With their colons, which part a word from its description there."""
    shell = Zsh(sim(1), tmp_path)
    try:
        offered = dict(line.split("\t", 1) for line in shell.gpus.lull("__complete", "options", "run").stdout.splitlines())
        wanted = {name: text for name, text in offered.items() if name.startswith(prefix)}
        assert len(wanted) > 1 and (prefix == "--re" or any(":" in text for text in wanted.values()))
        shell.tmux("send-keys", "-l", f"lull run {prefix}")
        wait_until(lambda: shell.screen().endswith(prefix), what="what was typed")
        shell.tmux("send-keys", "Tab")

        def shown():
            rows = (row.partition(" -- ") for row in shell.screen().splitlines())
            return {name.strip(): text.strip() for name, _, text in rows if text}
        wait_until(lambda: wanted.keys() <= shown().keys(), what=f"{sorted(wanted)} among {shown()}")
        assert {name: shown()[name] for name in wanted} == wanted
    finally:
        shell.close()
