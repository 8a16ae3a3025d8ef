"""The History and Policy views of `lull serve`, as a browser shows them. `./test page` runs this."""
import json
import os

import pytest
from recorded_days import PEOPLE, write_days
from test_serve_page import CUT_OFF, HOSTILE, TOLD, Page
from waiting import LIMIT, read_until

PICTURES = os.environ.get("LULL_PICTURES")


class Recorded(Page):
    """A server with a history."""

    def __init__(self, browser, folder, gpus=1):
        self.folder = folder
        super().__init__(browser, gpus)

    def start(self):
        self.server = self.sim.start_lull("serve", "--listen", self.listen, "--every", "500ms", "--history", self.folder)
        line = read_until(self.server.stderr, "serving on")
        self.address = line.split("serving on ")[1].split()[0]
        self.listen = self.address.removeprefix("http://")

    def look(self, view, width, dark=False):
        self.browser.show(f"{self.address}/?{os.urandom(4).hex()}#{view}", width, dark=dark)
        self.wait(f"!document.querySelector('#{view}-shown').hidden", f"the {view}", limit=4 * LIMIT)  # read at the lowest priority

    def key(self, name, code, control=False):
        for kind in ("keyDown", "keyUp"):
            self.browser.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code, modifiers=2 if control else 0)

    def picture(self, name):
        if PICTURES:
            self.browser.picture(f"{PICTURES}/{name}.png")


@pytest.fixture(scope="module")
def month(browser, tmp_path_factory):
    page = Recorded(browser, write_days(tmp_path_factory.mktemp("month") / "history", gpus=8, every=120))
    yield page
    page.close()


@pytest.fixture(scope="module")
def crowd(browser, tmp_path_factory):
    """128 GPUs, and names that nobody should have."""
    people = {**PEOPLE, "a_user_with_a_name_that_does_not_end_for_a_long_time_" + "x" * 60: HOSTILE.replace(",", ";"), "<b>mallory</b>": "x" * 400}
    page = Recorded(browser, write_days(tmp_path_factory.mktemp("crowd") / "history", gpus=128, every=900, people=people))
    yield page
    page.close()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", (390, 1300, 2560))
@pytest.mark.parametrize("view", ["history", "policy"])
@pytest.mark.parametrize("count", (8, 128))
def test_history_and_policy_fit_and_cut_nothing_off(month, crowd, count, view, width, dark):
    page = month if count == 8 else crowd
    page.look(view, width, dark)
    page.picture(f"serve-{view}-{count}-{width}-{'dark' if dark else 'light'}")
    assert page.ask("errors") == []
    assert page.ask("document.documentElement.scrollWidth") <= width
    assert page.ask(CUT_OFF) == []
    assert page.ask("document.querySelectorAll('main > div:not([hidden])').length") == 2, "one view and the bar"
    outside = page.ask("[...document.querySelectorAll('.chart text')].filter(e => e.getBoundingClientRect().left < e.closest('svg').getBoundingClientRect().left).map(e => e.textContent)")
    assert outside == [], "a label that is cut off"
    ground = page.ask("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, ground.strip("rgb()").split(","))) < 384) == dark


def test_history_shows_the_figures_of_the_report(month):
    month.look("history", 1300)
    report = month.ask("fetch('/api/history').then(answer => answer.json())")["report"]
    assert f"{100 * report['totals']['busy_hours'] / report['totals']['gpu_hours']:.0f} % busy" in month.ask("document.querySelector('#history-answer').textContent")
    rows = month.ask("[...document.querySelectorAll('#people tbody tr')].map(row => row.cells[0].textContent)")
    assert rows == [user["user"] or "nobody" for user in report["by_user"]]
    longest = month.ask("[...document.querySelectorAll('#stretches tbody tr')].map(row => row.cells[0].firstChild.firstChild.textContent)")
    assert longest == [one["user"] for one in report["longest_idle"][:20]]
    assert month.ask("document.querySelectorAll('#heat-table tbody tr').length") == 8


def test_hours_have_digits_that_fit(month):
    month.look("history", 1300)
    assert month.ask("[0, .0001, .004, .5, 12.34, 345.6].map(hoursText)") == ["0.0", "< 0.001", "0.004", "0.5", "12.3", "346"]


def test_heat_map_paints_busy_idle_and_free_hours_apart(month):
    """By the colours along the middle of each row: blue, amber and neither."""
    month.look("history", 1300)
    seen = month.ask("""(() => {
        const canvas = document.querySelector('#heat'), ctx = canvas.getContext('2d'), height = (canvas.height / devicePixelRatio - 22) / 8, seen = {blue: 0, amber: 0, neither: 0};
        for (let row = 0; row < 8; row++) {
            const line = ctx.getImageData(canvas.width * .2, (row + .5) * height * devicePixelRatio, canvas.width * .75, 1).data;
            for (let i = 0; i < line.length; i += 4) seen[line[i + 2] > line[i] + 40 ? 'blue' : line[i] > line[i + 2] + 40 ? 'amber' : 'neither']++;
        }
        return seen; })()""")
    totals = month.ask("fetch('/api/history').then(answer => answer.json())")["report"]["totals"]
    for colour, kind in (("blue", "busy"), ("amber", "idle"), ("neither", "free")):
        assert seen[colour] / sum(seen.values()) == pytest.approx(totals[f"{kind}_hours"] / totals["gpu_hours"], abs=0.12), (colour, seen)


def test_heat_map_is_read_with_the_keyboard(month):
    month.look("history", 1000)
    month.ask("document.querySelector('#heat').focus()")
    first = month.ask("document.querySelector('#heat-cell').textContent")
    assert first.startswith("GPU 0 · ")
    month.key("ArrowDown", 40)
    month.key("ArrowLeft", 37)
    second = month.ask("document.querySelector('#heat-cell').textContent")
    assert second.startswith("GPU 1 · ") and second != first
    month.key("ArrowLeft", 37, control=True)
    third = month.ask("document.querySelector('#heat-cell').textContent")
    assert third.split(" · ")[1].split()[3] == second.split(" · ")[1].split()[3], "the same time, a day earlier"
    assert third.split(" · ")[1] != second.split(" · ")[1]
    month.ask("document.querySelector('input[value=person]').click()")
    assert set(PEOPLE) & set(month.ask("[...document.querySelectorAll('#heat-legend bdi')].map(e => e.textContent)"))
    month.picture("serve-history-8-1000-person")


def test_views_are_reached_by_the_keyboard_and_named_for_who_hears_them(month):
    month.look("history", 1000)
    nodes = month.browser.call("Accessibility.getFullAXTree")["nodes"]
    named = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node["ignored"]]
    for wanted in (("link", "Now"), ("link", "History"), ("link", "Policy"), ("navigation", "Views"), ("radio", "who had it")):
        assert wanted in named, wanted
    assert any(role == "application" and "arrow keys" in name for role, name in named)
    tables = [name for role, name in named if role == "table"]
    assert "GPU-hours by user" in tables and "Longest held idle" in tables, tables
    month.ask("document.querySelector('#views a[href=\"#policy\"]').focus()")
    month.key("Enter", 13)
    month.browser.call("Input.dispatchKeyEvent", type="char", text="\r")
    month.wait("!document.querySelector('#view-policy').hidden && document.querySelector('#view-history').hidden", "the other view")
    assert month.ask("document.querySelector('#views a[aria-current]').textContent") == "Policy"


def test_policy_lets_an_administrator_choose(month):
    month.look("policy", 1300)
    sweep = month.ask("fetch('/api/policy').then(answer => answer.json())")["replay"]["sweep"]
    assert month.ask("document.querySelectorAll('#policy-values input').length") == len(sweep) == 8
    recommended = next((q["for"] for q in sweep if q["recommended"]), None)
    chosen = month.ask("document.querySelector('#policy-values input:checked').value")
    replay = month.ask("fetch('/api/policy').then(answer => answer.json())")["replay"]
    # What is chosen first is what the sentence and the table of lost work are about.
    assert chosen == recommended or (recommended is None and next(q["rule"] for q in sweep if q["for"] == chosen) == replay["ends_rule"])
    assert ("recommended" in month.ask("document.querySelector('#policy-legend').textContent")) == (recommended is not None)
    month.ask("document.querySelector('#policy-values input:checked').focus()")
    month.key("ArrowRight", 39)
    now = month.ask("document.querySelector('#policy-values input:checked').value")
    assert now != chosen
    rule = next(q["rule"] for q in sweep if q["for"] == now)
    assert month.ask("document.querySelector('#policy-chosen code').textContent") == f"lull watch --per job --step '{rule}: end' --dry-run"
    # A click on the chart chooses as well.
    month.ask("document.querySelectorAll('#policy-charts .chart:first-child .hit')[0].dispatchEvent(new MouseEvent('click', {bubbles: true}))")
    assert month.ask("document.querySelector('#policy-values input:checked').value") == sweep[0]["for"]
    assert month.ask("document.querySelectorAll('#policy-charts .interval').length") > 0
    done = month.sim.lull("check", rule)
    assert done.returncode == 0, done.stderr


def test_history_and_policy_set_all_names_as_text(month):
    month.look("history", 1000)
    month.ask("""(async () => {
        const name = %s, body = await (await fetch('/api/history')).json(), report = body.report;
        for (const u of report.by_user) u.user = name;
        for (const s of report.longest_idle) { s.user = s.command = s.job = s.gpu = name; }
        report.by_hour.people = report.by_hour.people.map(() => name);
        for (const g of report.by_hour.gpus) g.gpu = name;
        report.idle_rule = name;
        views.history.showAll(body);
        document.querySelector('#heat').focus();
    })()""" % json.dumps(HOSTILE))
    assert "\u202e" not in month.ask(TOLD)
    month.look("policy", 1000)
    month.ask("""(async () => {
        const name = %s, body = await (await fetch('/api/policy')).json(), r = body.replay;
        r.answer = r.basis = r.ends_rule = name;
        for (const h of r.hurt) { h.user = h.command = name; h.worked_again = 1; }
        for (const q of r.sweep) q.rule = name;
        views.policy.showAll(body);
    })()""" % json.dumps(HOSTILE))
    assert month.ask("document.querySelectorAll('main img, main script, main [onerror], main b:not(#gpus b)').length") == 0
    assert month.ask("errors") == []


def test_page_without_a_history_says_so(browser, tmp_path):
    page = Page(browser, 1)
    try:
        browser.show(page.address + "/#history", 390)
        page.wait("document.querySelector('#history-basis').textContent.includes('--history')", "that there is none")
        assert page.ask("document.querySelector('#history-shown').hidden") and page.ask("errors") == []
        assert page.ask("document.documentElement.scrollWidth") <= 390
        if PICTURES:
            browser.picture(f"{PICTURES}/serve-history-none-390.png")
    finally:
        page.close()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", (390, 1300))
@pytest.mark.parametrize("kind, said", [("empty", "has no day yet: `lull record --history` writes it"), ("missing", "No such file or directory")])
def test_page_without_any_day_says_so_on_every_view(browser, tmp_path, kind, said, width, dark):
    if kind == "empty":
        (tmp_path / "history").mkdir()
    page = Recorded(browser, tmp_path / "history")
    try:
        for view in ("now", "history", "policy"):
            browser.show(page.address + f"/?{view}#{view}", width, dark=dark)
            page.wait("!document.querySelector('#trouble').hidden", "the trouble")
            assert said in page.ask("document.querySelector('#trouble').textContent")
            if view != "now":
                page.wait(f"document.querySelector('#{view}-basis').textContent.includes('history')", "that there is nothing to show")
                assert page.ask(f"document.querySelector('#{view}-shown').hidden")
            assert page.ask("errors") == [] and page.ask(CUT_OFF) == []
            assert page.ask("document.documentElement.scrollWidth") <= width
            page.picture(f"serve-{view}-{kind}-{width}-{'dark' if dark else 'light'}")
    finally:
        page.close()


def test_page_says_when_nothing_is_recorded(browser, tmp_path):
    """On every view: a full disk, by what the recorder left in the folder."""
    folder = write_days(tmp_path / "history", days=2, gpus=1, every=600)
    (folder / ".lock").write_text("failed\n1790000000000000000\n5000000000\nwrite x: No space left on device\n")
    page = Recorded(browser, folder)
    try:
        for view in ("now", "history", "policy"):
            browser.show(page.address + f"/#{view}", 1000)
            page.wait("!document.querySelector('#trouble').hidden", "the trouble")
            assert "No space left on device" in page.ask("document.querySelector('#trouble').textContent")
        page.picture("serve-policy-disk-full")
    finally:
        page.close()


def test_one_gpu_with_one_day(browser, tmp_path):
    page = Recorded(browser, write_days(tmp_path / "history", days=1, gpus=1, every=60))
    try:
        page.look("history", 390)
        assert page.ask("errors") == [] and page.ask(CUT_OFF) == []
        page.picture("serve-history-1-390")
        page.look("policy", 390)
        assert page.ask("errors") == [] and page.ask(CUT_OFF) == []
    finally:
        page.close()
