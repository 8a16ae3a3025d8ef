"""The page of `lull run --evidence`, as a browser shows it from its file. `./test page` runs this."""
import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LULL = ROOT / os.environ.get("LULL_BUILD_DIR", "build/dev") / "lull"
RULE = "util < 1 and procs < 5 for 2s"
HOSTILE = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">'\"&amp;</pre></details>"
# Four ranks, of which one waits elsewhere, and their launcher.
MAIN = """import os, subprocess, sys, time

def load_batch():
    os.write(int(os.environ['READY']), b'x')
    time.sleep(1000)

def train_step(rank):
    if rank == 3:
        load_batch()
    os.write(int(os.environ['READY']), b'x')
    time.sleep(1000)

def launch(lull):
    ready, tell = os.pipe()
    for rank in range(4):
        subprocess.Popen([sys.executable, __file__, 'rank', *sys.argv[2:]], env={**os.environ, 'RANK': str(rank), 'READY': str(tell)},
                         pass_fds=[tell])
    for rank in range(4):
        os.read(ready, 1)
    subprocess.run([lull, 'sim', 'set', 'all', 'util=0', 'power=80'], check=True)  # it hangs from now on
    time.sleep(1000)

if sys.argv[1] == 'rank':
    train_step(int(os.environ['RANK']))
launch(sys.argv[2])
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Two GPUs that are busy, then idle, with a job of four ranks, one of which hangs elsewhere."""
    folder = tmp_path_factory.mktemp("evidence")
    name = folder / "a <b>train<i> & 'script' with a long name and no sense.py"
    name.write_text(MAIN)
    job = ["/usr/bin/python3", name, "launch", LULL, HOSTILE, b"\xff\xfe\x1b[2J"]
    words = [LULL, "sim", "--gpus", "2xH100", "--", "sh", "-c", 'lull=$1; shift; "$lull" sim set all util=90 power=600 && exec "$@"', "sh", LULL,
             LULL, "run", "--delay", "0", "--every", "100ms", "--idle", RULE, "--gpus", "all", "--evidence", folder / "ev", "--", *job]
    done = subprocess.run(words, timeout=120, capture_output=True, check=False)
    assert done.returncode == 124, done.stderr.decode(errors="replace")
    (one,) = (folder / "ev").iterdir()
    assert json.loads((one / "facts.json").read_text())["event"] == "idle"
    return one / "index.html"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1000, 1300])
def test_all_of_the_evidence_can_be_read_at_any_width(browser, page, width, dark):
    browser.show(page, width, dark=dark)
    assert browser.ask("errors") == []
    assert browser.ask("document.documentElement.scrollWidth") <= width
    assert browser.ask("""[...document.querySelectorAll('main *')].filter(e => {
        const box = e.getBoundingClientRect(); return box.width && box.right > innerWidth + 1; }).map(e => e.outerHTML.slice(0, 80))""") == []
    # Words differ from what is behind them, in the page and in the picture, of which one is shown.
    assert browser.ask("""(() => {
        const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number); return (.299 * r + .587 * g + .114 * b) / 255; };
        const ground = light(getComputedStyle(document.body).backgroundColor);
        const shown = [...document.querySelectorAll('svg')].filter(e => e.getBoundingClientRect().width);
        const behind = light(getComputedStyle(shown[0].querySelector('.lp-ground')).fill);
        return shown.length === 1 && (ground < .5) === %s && (behind < .5) === %s
            && Math.abs(ground - light(getComputedStyle(document.querySelector('h1')).color)) > .6
            && [...shown[0].querySelectorAll('text')].every(e => Math.abs(behind - light(getComputedStyle(e).fill)) > .4); })()"""
                       % ((str(dark).lower(),) * 2))
    # And are large enough: no letter of the picture is drawn smaller than 9 pixels.
    assert browser.ask("""(() => { const one = [...document.querySelectorAll('svg')].find(e => e.getBoundingClientRect().width);
        return 12 * one.getBoundingClientRect().width / one.viewBox.baseVal.width; })()""") >= 9
    # No word of the picture leaves it or lies on another.
    assert browser.ask("""(() => { const one = [...document.querySelectorAll('svg')].find(e => e.getBoundingClientRect().width);
        const edge = one.getBoundingClientRect(), boxes = [...one.querySelectorAll('text')].map(e => [e.textContent, e.getBoundingClientRect()]);
        const bad = boxes.filter(([, b]) => b.right > edge.right + 1 || b.left < edge.left - 1).map(([t]) => t);
        boxes.forEach(([t, a], i) => boxes.slice(i + 1).forEach(([u, b]) => {
            if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3) bad.push(t + ' / ' + u); }));
        return bad; })()""") == []
    if picture := os.environ.get("LULL_PICTURES"):
        browser.picture(f"{picture}/evidence-{width}-{'dark' if dark else 'light'}.png")


def test_it_says_why_where_and_who_differs(browser, page):
    browser.show(page, 1300)
    text = browser.ask("document.body.innerText")
    for part in (RULE, "Decided", "Since", "rank 3", "load_batch", "train_step", "tree.txt", "kernel.txt", "readings.csv"):
        assert part in text, (part, text[:3000])
    first, *others = browser.ask("[...document.querySelectorAll('h3')].map(e => e.innerText)")
    assert first.startswith("1 of 5 Python processes, which differs from the rest: rank 3 (process ") and len(others) >= 1
    words = browser.ask("[...document.querySelectorAll('.wide text')].map(e => e.textContent)")
    assert "GPU 0" in words and "GPU 1" in words and "util" in words and "power" in words
    # Every file of the folder is there and named.
    named = set(browser.ask("[...document.querySelectorAll('a')].map(e => e.getAttribute('href'))"))
    assert named == {f.name for f in page.parent.iterdir()} - {"index.html", "utilisation.svg"}


def test_names_of_others_are_text_and_nothing_is_fetched(browser, page):
    browser.show(page, 1300)
    assert browser.ask("document.title").startswith("lull: ")
    assert browser.ask("document.querySelectorAll('script, img, iframe, object, link, form').length") == 0
    assert browser.ask("[...document.querySelectorAll('*')].filter(e => [...e.attributes].some(a => a.name.startsWith('on'))).length") == 0
    assert browser.ask("performance.getEntriesByType('resource').length") == 0
    assert "<script>document.title='owned'</script>" in browser.ask("document.querySelector('dl').innerText")
    html = page.read_bytes()
    html.decode()  # all of it is UTF-8
    assert b"\x1b" not in html and html.count(b"http://") == html.count(b"http://www.w3.org/2000/svg")
