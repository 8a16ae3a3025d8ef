"""The page of `lull serve`, as a browser shows it, on simulated GPUs. `./test page` runs this."""
import json
import os
import pathlib
import subprocess
import tempfile

import pytest
from simulated import e2e
from waiting import LIMIT, read_until, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
LULL = ROOT / os.environ.get("LULL_BUILD_DIR", "build/dev") / "lull"
# All that people see or hear.
TOLD = """document.title + [...document.querySelectorAll('main, dialog, [title], [aria-label]')].map(e => e.textContent + e.title + e.getAttribute('aria-label')).join()"""
HOSTILE = "<img src=x onerror=errors.push('markup')><script>errors.push('script')</script>\"'&amp;\u202e"


class Page:
    """A simulation with a server in it, shown in the browser."""

    def __init__(self, browser, gpus):
        self.browser = browser
        self.sim = e2e.Sim(str(LULL), gpus)
        self.listen = "127.0.0.1:0"
        self.start()

    def start(self, *options):
        self.server = self.sim.start_lull("serve", "--listen", self.listen, "--every", "200ms", *options)
        line = read_until(self.server.stderr, "\n")
        self.address = line.split("serving on ")[1].strip()
        self.listen = self.address.removeprefix("http://")

    def show(self, width, dark=False):
        self.browser.show(self.address + "/", width, dark=dark)
        self.wait("document.querySelector('#state').textContent === 'live'", "the first sample")

    def ask(self, expression):
        return self.browser.ask(expression)

    def wait(self, expression, what, limit=LIMIT):
        return wait_until(lambda: self.ask(expression), limit=limit, what=what)

    def close(self):
        self.sim.close()


@pytest.fixture(scope="module")
def few(browser):
    page = Page(browser, 1)
    yield page
    page.close()


@pytest.fixture(scope="module")
def many(browser):
    """128 GPUs; some work, with long and hostile names, one is leased, one is lost."""
    page = Page(browser, 128)
    page.sim.set(1, util=90)
    page.sim.started.append(subprocess.Popen([HOSTILE + " --config a_long_name_without_any_blank_" + "x" * 300, "sim", "load", "--gpu", "0,2", "--util",
                                              "80", "--mem", "20GiB"], executable=LULL, env=page.sim.env, stdout=subprocess.DEVNULL))
    page.sim.start_lull("pick", "--gpus", "5", "--", "sleep", "1000")
    page.sim.fault(7, "lost")
    yield page
    page.close()


CUT_OFF = """[...document.querySelectorAll('main *')].filter(e => {
    const box = e.getBoundingClientRect(); return box.width && box.right > innerWidth + 1; }).map(e => e.outerHTML.slice(0, 120))"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("count, width", [(1, 390), (1, 1300), (1, 2560), (128, 390), (128, 1300)])
def test_page_shows_each_gpu_and_cuts_nothing_off(few, many, count, width, dark):
    page = few if count == 1 else many
    page.show(width, dark)
    page.wait(f"document.querySelectorAll('#gpus tbody tr').length === {count}", "the rows")
    if count == 128:
        page.wait("document.querySelectorAll('#gpus tbody tr')[0].textContent.includes('onerror')", "the process")
        page.wait("document.querySelectorAll('#gpus tbody tr')[5].cells[10].textContent !== ''", "the lease")
        page.wait("document.querySelectorAll('#gpus tbody tr')[7].textContent.includes('lost')", "the loss")
        lost = page.ask("[...document.querySelectorAll('#gpus tbody tr')[7].cells].map(td => td.innerText.split('\\n').pop())")
        assert lost[2:4] == ["unknown", "unknown"], "memory and power of a GPU that is lost"
    assert page.ask("errors") == []
    assert page.ask("document.documentElement.scrollWidth") <= width
    assert page.ask(CUT_OFF) == []
    assert page.ask("document.querySelector('#summary').textContent").startswith(f"{count} GPU")
    ground = page.ask("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, ground.strip("rgb()").split(","))) < 384) == dark
    if picture := os.environ.get("LULL_PICTURES"):
        page.browser.picture(f"{picture}/serve-{count}-{width}-{'dark' if dark else 'light'}.png")


def test_page_fits_wide_screens(many):
    for width in (700, 1000, 2560):
        many.show(width)
        assert many.ask("document.documentElement.scrollWidth") <= width
        assert many.ask(CUT_OFF) == []
        if picture := os.environ.get("LULL_PICTURES"):
            many.browser.picture(f"{picture}/serve-128-{width}-light.png")


EIGHT = """(() => {
    const event = JSON.parse(JSON.stringify(shown)), one = event.status.gpus[0], now = new Date(event.status.time).getTime();
    const ago = minutes => new Date(now - 60000 * minutes).toISOString();
    const people = [['alice', 'python3 train.py --config large.yaml', 'slurm:4711'], ['alice', 'python3 train.py --config large.yaml', 'slurm:4711'],
      ['bob', 'vllm serve meta-llama/Llama-3.1-70B --tensor-parallel-size 1', ''], ['carol', 'jupyter-lab', 'container:3f0c9a8b7d61'], null, ['dave', 'python3 sweep.py', ''], null, null];
    event.status.gpus = people.map((who, i) => ({...one, index: i, uuid: 'GPU-' + i, pci: '0000:' + i, util_percent: i < 3 ? 97 - 9 * i : i === 7 ? null : 0,
      mem_used_bytes: (who ? 60 - 7 * i : 0) * 2 ** 30, power_watts: i < 3 ? 380 - 40 * i : 61, idle_seconds: i < 3 || i === 7 ? null : 60 * (7 ** (i - 2)), idle_at_least: i === 4,
      error: i === 7 ? 'GPU is lost' : null, leases: i === 4 ? [{user: 'erin', since: ago(8), command: 'lull pick', pid: 9}] : [],
      processes: i === 7 ? null : who ? [{pid: 100 + i, user: who[0], command: who[1], started: ago(37 * (i + 1) ** 2), proof: 'proven', filler: i === 5}] : []}));
    event.uses = ['busy', 'busy', 'busy', 'held idle', 'held idle', 'held idle', 'free', 'unknown'];
    event.summary = '8 GPUs: 3 busy, 3 held idle, 1 free, 1 unknown';
    event.jobs = people.flatMap((who, i) => who && who[2] ? [{job: who[2], pids: [100 + i], users: [who[0]], gpus: [{gpu: String(i), uuid: 'GPU-' + i}], watched: i === 3,
      next_action: 'end', next_in_seconds: 780, kept_until: null, dry_run: false}] : []);
    event.keep = true;
    hours = new Map(event.status.gpus.map((g, i) => [String(i), Array.from({length: 180}, (_, k) => i === 7 && k > 90 || i === 6 && k < 40 ? null
      : people[i] && k < (i < 3 ? 180 : 40 + 20 * i) ? 60 + 35 * Math.abs(Math.sin(k / (7 + i))) : 0)]));
    show(event);
})()"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", (390, 1300, 2560))
def test_page_of_eight_gpus_at_work(few, width, dark):
    few.show(width, dark)
    few.ask("listen = () => {}; show = (real => event => { if (event.status && event.status.gpus.length > 1) real(event); })(show)")
    few.ask(EIGHT)
    assert few.ask("errors") == []
    assert few.ask("document.documentElement.scrollWidth") <= width
    assert few.ask(CUT_OFF) == []
    cells = "[...document.querySelectorAll('#gpus tbody tr')].map(tr => [...tr.cells].map(td => td.innerText.trim()))"
    rows = few.ask(cells)
    assert [row[8].split("\n")[-1] for row in rows] == ["", "", "", "7m", "≥ 49m", "5h43m", "1d16h1m", ""]
    assert rows[3][9].split("\n")[-1].startswith("end in 13m")
    # A word on a ground of its own is inside of it.
    assert few.ask("[...document.querySelectorAll('#gpus .use')].filter(e => e.scrollHeight > e.clientHeight || e.clientWidth > e.scrollWidth + 1 || e.clientWidth > 110).length") == 0
    # What all have in common is said once, and a column that nobody needs is not there.
    assert few.ask("document.querySelector('#model').textContent") == "all NVIDIA A100-SXM4-80GB"
    assert few.ask("[...document.querySelectorAll('#gpus .name')].every(e => e.hidden)")
    assert few.ask("document.querySelector('#gpus').tHead.rows[0].cells[10].hidden") is False
    # What was not seen of the hour is left as the ground, which is hatched.
    assert few.ask("[...document.querySelectorAll('#gpus tbody tr')[6].querySelectorAll('.seen')].map(e => [e.getAttribute('x'), e.getAttribute('width')])") == [["40", "140"]]
    if picture := os.environ.get("LULL_PICTURES"):
        few.browser.picture(f"{picture}/serve-8-{width}-{'dark' if dark else 'light'}.png")


def test_page_leaves_out_columns_without_a_word(few):
    few.show(1300)
    hidden = "[...document.querySelectorAll('#gpus thead th')].filter(th => th.hidden).map(th => th.textContent)"
    few.wait(f"{hidden}.length === 4", "what is not there")
    assert few.ask(hidden) == ["job", "next", "lease", "filler"]
    assert few.ask("document.querySelector('#gpus .name').textContent") == "NVIDIA A100-SXM4-80GB"
    few.ask("(() => { const event = JSON.parse(JSON.stringify(shown)); event.status.gpus[0].leases = [{user: 'erin', since: null}]; show(event); return 0; })()")
    assert few.ask(hidden) == ["job", "next", "filler"]
    few.ask("(() => { const event = JSON.parse(JSON.stringify(shown)), gpu = event.status.gpus[0]; gpu.idle_seconds = 0.4; gpu.idle_at_least = true; show(event); })()")
    assert few.ask("document.querySelector('#gpus tbody tr').cells[8].textContent") == ""


def test_page_sets_all_names_as_text(few):
    """Whatever a user, a command, a GPU or a lease is called."""
    few.show(1000)
    few.ask("""(() => {
        const event = JSON.parse(JSON.stringify(shown)), name = %s;
        const gpu = event.status.gpus[0];
        gpu.name = gpu.error = gpu.uuid = event.host = event.summary = name;
        event.uses = [name];
        gpu.leases = [{user: name, since: name, command: name, pid: 1}];
        gpu.processes = [{pid: 7, user: name, command: name, name, started: name, proof: name, filler: true}];
        event.jobs = [{job: name, pids: [7], users: [name], gpus: [{gpu: '0', uuid: name}], watched: true, next_action: name,
                       next_in_seconds: 90, kept_until: '2999-01-01T00:00:00Z', dry_run: true, nodes: name, command: name}];
        event.keep = true;
        event.queue = [{user: name, count: 1, since: name, command: name, share: 0}];
        show(event);
        show({up: false, host: name, every_seconds: 1, error: name});
        show(event);
        document.querySelector('#gpus button.keep').click();
    })()""" % json.dumps(HOSTILE))
    assert "onerror" in few.ask("document.querySelector('#keep-job').textContent + document.querySelector('#waiting').textContent")
    assert few.ask("document.querySelectorAll('main img, main script, #gpus [onerror]').length") == 0
    assert "\u202e" not in few.ask(TOLD), "it would turn what follows around"
    assert few.ask(r"plain('a\tb\u202ec\u{e0041}d\u{1f600}')") == "a b?c?d\U0001f600"
    assert few.ask("errors") == []


def test_page_changes_only_what_changed(few):
    """No flicker: rows and cells stay, and what reads the page aloud is not told with every sample."""
    few.show(1000)
    few.ask("""window.changes = []; window.first = document.querySelector('#gpus tbody tr');
        new MutationObserver(all => changes.push(...all.map(m => (m.target.closest ? m.target : m.target.parentNode).closest('[data-label],[id]')))).observe(
            document.body, {subtree: true, childList: true, characterData: true, attributes: true})""")
    few.ask("window.heard = lastHeard")
    few.wait("lastHeard > heard + 1500", "some samples")
    assert few.ask("document.querySelector('#gpus tbody tr') === first")
    touched = set(few.ask("changes.map(e => e ? e.dataset.label || e.id : '')"))
    assert touched <= {"host", "utilisation, last hour", "power", "idle for", "memory"}, touched


def test_page_follows_the_gpus(few):
    few.show(1000)
    few.sim.set(0, util=100)
    few.wait("document.querySelector('#gpus tbody tr .use').textContent === 'busy'", "work")
    few.sim.set(0, util=0)
    few.wait("document.querySelector('#gpus tbody tr .use').textContent !== 'busy'", "rest")
    few.wait("/\\d/.test(document.querySelector('#gpus tbody tr').cells[8].textContent)", "for how long")


def test_page_says_when_gpus_cannot_be_read(few):
    few.show(1000)
    few.sim.fault("all", "no-driver")
    few.wait("document.querySelector('#state').textContent === 'no sample'", "that there is none")
    assert few.ask("document.querySelector('#gpus').hidden"), "what was is not shown as what is"
    assert few.ask("document.querySelector('#note').textContent")
    few.sim.clear()
    few.wait("document.querySelector('#state').textContent === 'live' && !document.querySelector('#gpus').hidden", "the return")


def test_page_says_when_the_server_is_gone_and_when_it_is_back(few):
    few.show(1000)
    few.server.kill()
    few.server.wait()
    few.wait("document.querySelector('#state').textContent.startsWith('the server does not answer')", "that it is gone")
    assert few.ask("document.body.classList.contains('gone')")
    few.start()
    few.wait("document.querySelector('#state').textContent === 'live' && !document.body.classList.contains('gone')", "the return")


def test_page_filters_by_the_keyboard_and_is_named_for_who_hears_it(many):
    many.show(1000)
    many.wait("document.querySelectorAll('#gpus tbody tr')[0].textContent.includes('onerror')", "the process")
    for _ in range(8):
        many.browser.call("Input.dispatchKeyEvent", type="keyDown", key="Tab", code="Tab", windowsVirtualKeyCode=9)
        if many.ask("document.activeElement.id") == "filter":
            break
    assert many.ask("document.activeElement.id") == "filter"
    many.browser.call("Input.insertText", text="onerror")
    many.wait("[...document.querySelectorAll('#gpus tbody tr')].filter(e => !e.hidden).length === 2", "the filter")
    assert "126 of 128" in many.ask("document.querySelector('#note').textContent")
    nodes = many.browser.call("Accessibility.getFullAXTree")["nodes"]
    named = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node["ignored"]]
    assert ("searchbox", "filter") in named
    assert sum(role == "columnheader" for role, _ in named) in (0, 12)  # not there where rows are cards
    assert any(role == "image" and name.startswith("last hour: ") for role, name in named), {r for r, _ in named}
    assert any(role == "status" for role, _ in named)


TOKEN = "a-token-of-more-than-16-characters"


@pytest.fixture(scope="module")
def watched(browser, tmp_path_factory):
    """An idle job with a watcher, somebody who waits, and a server that lets root keep the job."""
    folder = tmp_path_factory.mktemp("watched")
    (folder / "tokens").write_text(f"root {TOKEN}\n{TOKEN}-of-nobody\n")
    (folder / "tokens").chmod(0o600)
    page = Page.__new__(Page)
    page.browser, page.sim = browser, e2e.Sim(str(LULL), 2)
    with tempfile.TemporaryDirectory(prefix="lull-c-") as place:
        page.sim.env["LULL_CONTROL"] = place
        page.job = page.sim.load(0, 0, "20GiB")
        watcher = page.sim.start_lull("watch", "--per", "job", "--step", "util < 1 for 1h: exec=true", "--step", "util < 1 for 2h: end",
                                      "--every", "200ms")
        read_until(watcher.stderr, "watching each job")
        page.sim.start_lull("pick", "--gpus", "1", "--", "sleep", "1000")
        wait_until(lambda: json.loads(page.sim.lull("leases", "--json").stdout)["leases"], what="the lease")
        page.sim.start_lull("pick", "--wait", "--count", "2", "--", "python3", "train.py", "--epochs", "100")
        page.listen = "127.0.0.1:0"
        page.start("--allow-keep", "--token-file", str(folder / "tokens"))
        browser.call("Network.enable")
        browser.call("Network.setExtraHTTPHeaders", headers={"Authorization": f"Bearer {TOKEN}"})
        yield page
        browser.call("Network.setExtraHTTPHeaders", headers={})
        page.close()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", (390, 1300))
def test_page_says_what_is_done_next_and_who_waits(watched, width, dark):
    watched.show(width, dark)
    watched.wait("/exec in (59m|1h)/.test(document.querySelector('#gpus tbody tr').cells[9].textContent)", "what is next")
    watched.wait("!document.querySelector('#queue').hidden && document.querySelector('#waiting').textContent.includes('train.py')", "the queue")
    assert watched.ask("errors") == []
    assert watched.ask("document.documentElement.scrollWidth") <= width
    assert watched.ask(CUT_OFF) == []
    if picture := os.environ.get("LULL_PICTURES"):
        watched.browser.picture(f"{picture}/serve-next-{width}-{'dark' if dark else 'light'}.png")
        watched.ask("document.querySelector('#gpus button.keep').click()")
        watched.browser.picture(f"{picture}/serve-keep-{width}-{'dark' if dark else 'light'}.png")


def test_page_keeps_a_job_by_the_keyboard(watched):
    def key(name, code):
        for kind in ("keyDown", "keyUp"):
            watched.browser.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code,
                                 **({"text": "\r"} if name == "Enter" and kind == "keyDown" else {}))

    watched.show(1300)
    watched.wait("!!document.querySelector('#gpus button.keep')", "the button")
    watched.ask("document.querySelector('#gpus button.keep').focus()")
    key("Enter", 13)
    watched.wait("document.querySelector('#keep').open", "the question")
    assert watched.ask("document.querySelector('#keep-job').textContent").startswith("tree:")
    watched.ask("document.querySelector('#keep button[type=submit]').focus()")
    key("Enter", 13)
    watched.wait("document.querySelector('#keep-answer').textContent.startsWith('kept:')", "the answer")
    key("Escape", 27)
    watched.wait("!document.querySelector('#keep').open", "the end of the question")
    watched.wait("document.querySelector('#gpus tbody tr').cells[9].textContent.includes('kept until')", "until when")
    assert watched.ask("errors") == []


def test_page_says_why_a_job_is_not_kept(watched):
    watched.browser.call("Network.setExtraHTTPHeaders", headers={"Authorization": f"Bearer {TOKEN}-of-nobody"})
    try:
        watched.show(1300)
        watched.wait("!!document.querySelector('#gpus button.keep')", "the button")
        watched.ask("document.querySelector('#gpus button.keep').click(); document.querySelector('#keep button[type=submit]').click()")
        watched.wait("document.querySelector('#keep-answer').textContent.includes('unknown user')", "the reason")
    finally:
        watched.browser.call("Network.setExtraHTTPHeaders", headers={"Authorization": f"Bearer {TOKEN}"})
