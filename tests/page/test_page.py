"""The pages of `lull replay --html` and `lull report --html`, as a browser shows them. `./test page` runs this."""
import datetime
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LULL = ROOT / os.environ.get("LULL_BUILD_DIR", "build/dev") / "lull"
SIZES = (375, 1000, 1300)
NAMES = "python3 train.py --config configs/large/an_experiment_with_a_long_name_and_no_blank.yaml"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """40 GPUs of hosts with long names, over 3 hours: idle for longer the higher their number; five are not seen for a while."""
    folder = tmp_path_factory.mktemp("page")
    trace = folder / "a-trace-with-a-long-name.csv"
    start = datetime.datetime(2026, 3, 1, tzinfo=datetime.timezone.utc)
    lines = ["time,host,gpu,util_percent,mem_used_bytes,power_watts,power_limit_watts,users,pids,command"]
    for i in range(360):
        time = (start + datetime.timedelta(seconds=30 * i)).strftime("%Y-%m-%dT%H:%M:%SZ")
        for g in range(40):
            if g < 5 and 100 < i < 130:
                continue
            idle = 60 < i < 70 + 7 * g
            lines.append(f"{time},node{g // 8:03}.a-cluster.some-university.example.org,{g % 8},{0 if idle else 40 + i % 60},"
                         f"{8 << 30},{80 if idle else 500},700,{'a-user-with-a-long-name' if g % 3 else 'ada'},{100 + g},{NAMES}")
    trace.write_text("\n".join(lines) + "\n")
    for name, command in (("replay", ["--idle", "util < 1", "--sweep", "for=10m,30m,1h,2h"]),
                          ("report", ["--by", "all", "--price", "2.5"])):
        subprocess.run([LULL, name, trace, *command, "--html", folder / f"{name}.html"], check=True, timeout=120,
                       stdout=subprocess.DEVNULL)
    week = folder / "week.csv"  # as lull record writes it: jobs that stop working
    with week.open("w") as out:
        out.write("time,gpu,uuid,util_percent,host,users,pids,command,lease,job\n")
        for i in range(7 * 144):
            time = (start + datetime.timedelta(minutes=10 * i)).strftime("%Y-%m-%dT%H:%M:%S.000Z")
            out.writelines(f"{time},{g},GPU-{g},{90 if i < 100 + 3 * g else 0},n,ada,{100 + g},x,,\n" for g in range(12))
    subprocess.run([LULL, "replay", week, "--idle", "util < 1", "--sweep", "for=30m,1h,2h", "--lose", "27%", "--html",
                    folder / "week.html"], check=True,
                   timeout=120, stdout=subprocess.DEVNULL)
    return folder


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", SIZES)
@pytest.mark.parametrize("page", ["replay", "report"])
def test_nothing_is_cut_off_and_nothing_scrolls_sideways(browser, pages, page, width, dark):
    browser.show(pages / f"{page}.html", width, dark=dark)
    assert browser.ask("errors") == []
    assert browser.ask("document.documentElement.scrollWidth") <= width
    # Neither the page nor any part of it has something to the right of its edge; a cell that is not shown has no size.
    assert browser.ask("""[...document.querySelectorAll('main *')].filter(e => {
        const box = e.getBoundingClientRect(); return box.width && box.right > innerWidth + 1; }).map(e => e.outerHTML.slice(0, 80))""") == []
    assert browser.ask("""[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth + 1)
        .map(e => e.outerHTML.slice(0, 80))""") == []
    # Words can be read: they differ from what is behind them.
    assert browser.ask("""(() => {
        const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number); return (.299 * r + .587 * g + .114 * b) / 255; };
        const ground = light(getComputedStyle(document.body).backgroundColor);
        return Math.abs(ground - light(getComputedStyle(document.querySelector('h1')).color)) > .6 && (ground < .5) === %s; })()"""
                       % str(dark).lower())
    if picture := os.environ.get("LULL_PICTURES"):  # a folder to look at
        browser.picture(f"{picture}/{page}-{width}-{'dark' if dark else 'light'}.png")


@pytest.mark.parametrize("width", (390, 1000))
@pytest.mark.parametrize("page", ["replay", "report"])
def test_no_column_is_left_out_where_it_is_narrow(browser, pages, page, width):
    browser.show(pages / f"{page}.html", width)
    assert browser.ask("""[...document.querySelectorAll('td')].filter(e => e.textContent && !e.getBoundingClientRect().width)
        .map(e => e.dataset.label)""") == []
    # Where the heads are gone, each cell has its own.
    assert browser.ask("""[...document.querySelectorAll('table')].filter(t => !t.tHead.getBoundingClientRect().width)
        .flatMap(t => [...t.querySelectorAll('td')]).filter(e => e.textContent && e.dataset.label &&
        getComputedStyle(e, '::before').content !== '"' + e.dataset.label + '"').map(e => e.dataset.label)""") == []
    if width == 390:
        assert browser.ask("[...document.querySelectorAll('table')].every(t => !t.tHead.getBoundingClientRect().width)")


def test_a_short_recording_shows_enough_digits(browser, tmp_path):
    """Six minutes of four GPUs: a few thousandths of an hour are not 0.0, and an axis ends near what it shows."""
    trace = tmp_path / "short.csv"
    trace.write_text("time,gpu,util_percent,mem_used_bytes,users\n" + "".join(
        f"{2 * i},{g},{0 if i > 30 else 50},{8 << 30},ada\n" for i in range(181) for g in range(4)))
    for name, options in (("replay", ["--idle", "util < 1", "--sweep", "for=30s,1m,4m"]), ("report", ["--idle", "util < 1 for 1m"])):
        subprocess.run([LULL, name, trace, *options, "--html", tmp_path / f"{name}.html"], check=True, timeout=120,
                       stdout=subprocess.DEVNULL)
    browser.show(tmp_path / "replay.html", 1300)
    assert browser.ask("[...document.querySelectorAll('#gpus tbody tr')][0].cells[1].textContent") == "0.100"
    axis = browser.ask("[...document.querySelectorAll('#charts svg')[0].querySelectorAll('text[text-anchor=end]')].map(t => +t.textContent)")
    most = browser.ask("Math.max(...[...document.querySelectorAll('#charts svg')[0].querySelectorAll('circle title')]"
                       ".map(t => +t.textContent.split(': ').pop()))")
    assert 0 < most <= axis[-1] <= 2 * most, (most, axis)
    browser.show(tmp_path / "report.html", 1300)
    cells = browser.ask("[...document.querySelectorAll('table')][0].rows[1].cells.length")
    texts = browser.ask("[...[...document.querySelectorAll('table')][0].rows[1].cells].map(c => c.textContent)")
    assert len(texts) == cells and "0.40" in texts and "0.067" in texts, texts


@pytest.mark.parametrize("width", SIZES)
def test_a_recommendation_is_the_headline(browser, pages, width):
    browser.show(pages / "week.html", width)
    assert browser.ask("errors") == []
    headline = browser.ask("document.querySelector('h1').textContent")
    assert headline.startswith("Recommended: 30m (firm: the recording covers 7 days). Ends 12 of 12 jobs; none of them was seen "
                               "to work again; no work lost among 12 jobs (up to 27 % of other jobs may lose some); "), headline
    rows = browser.ask("[...document.querySelectorAll('#rows tbody tr')].map(row => row.textContent)")
    assert len(rows) == 3 and not any("0.0\u2060–\u20600.0" in row for row in rows), rows


@pytest.mark.parametrize("width", SIZES)
def test_the_sentence_comes_first_then_the_policies_then_timelines(browser, pages, width):
    browser.show(pages / "replay.html", width)
    tops = browser.ask("['#answer', '#rows', '#charts', '#lines'].map(s => document.querySelector(s).getBoundingClientRect().top)")
    assert tops == sorted(tops)
    assert browser.ask("document.querySelector('#answer').textContent").startswith("No recommendation: the recording covers 3.0 h, a recommendation needs 24 h. After 10m the rule ends ")
    assert browser.ask("document.querySelectorAll('#rows tbody tr').length") == 4
    # Numbers on axes are round.
    ticks = browser.ask("[...document.querySelectorAll('#charts svg')].map(s => [...s.querySelectorAll('text[text-anchor=end]')].map(t => +t.textContent))")
    for axis in ticks:
        step = axis[1] - axis[0]
        assert str(round(step * 1e6)).rstrip("0") in ("1", "2", "5"), axis
    # And big enough to be read on a telephone.
    assert browser.ask("""Math.min(...[...document.querySelectorAll('#charts text')].map(t => t.getBoundingClientRect().height))""") >= 9


def test_more_gpus_are_shown_when_asked_for(browser, pages):
    browser.show(pages / "replay.html", 1000)
    height = browser.ask("document.querySelector('#lines').clientHeight")
    assert height < 900, "at most a screenful"
    assert "of the 40 GPUs" in browser.ask("document.querySelector('#more-gpus').textContent")
    browser.ask("document.querySelector('#more-gpus').click()")
    assert browser.ask("document.querySelector('#lines').clientHeight") > 40 * 40
    assert browser.ask("document.querySelector('#more-gpus').hidden")
    assert browser.ask("document.documentElement.scrollWidth") <= 1000


def test_what_is_under_the_pointer_is_told_within_the_window(browser, pages):
    browser.show(pages / "replay.html", 1000)
    browser.ask("document.querySelector('#lines').scrollIntoView()")
    box = browser.ask("(() => { const b = document.querySelector('#lines').getBoundingClientRect(); return [b.left, b.top, b.right]; })()")
    for x in (box[0] + 300, box[2] - 2):
        browser.point(x, box[1] + 20)
        assert browser.ask("getComputedStyle(document.querySelector('#tip')).display") == "block"
        text = browser.ask("document.querySelector('#tip').textContent")
        assert text.startswith("GPU node004/7") and "2026-03-01" in text, "the one that wasted most, by a name without its domain"
        assert browser.ask("document.querySelector('#tip').getBoundingClientRect().right") <= 1000
    browser.point(box[0] + 300, 1)
    assert browser.ask("getComputedStyle(document.querySelector('#tip')).display") == "none"
