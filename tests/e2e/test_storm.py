"""Many picks at once beside many watchers: nothing is lost, no GPU is given twice, and nobody starves."""
import os
import signal

from conftest import wait_until
from storm import Storm

SEED = int(os.environ.get("LULL_TEST_STORM_SEED", "20"))
WATCHERS = int(os.environ.get("LULL_TEST_STORM_WATCHERS", "16"))
PICKS = int(os.environ.get("LULL_TEST_STORM_PICKS", "150"))  # ./test bench has 64 watchers and 1000 picks
LIMIT = 120  # seconds, for what should take 5


def test_many_picks_at_once_beside_many_watchers(sim, tmp_path):
    gpus = sim(8)
    storm = Storm(gpus.binary, gpus.env, tmp_path, SEED, LIMIT)
    try:
        storm.watch(WATCHERS)
        wait_until(storm.traces, what="all to watch")
        storm.pick(PICKS, sizes=(1, 1, 1, 2, 4))
        killed = storm.kill_some(0.05)
        failed = storm.wait()
        assert {number: why for number, why in failed.items() if number not in killed} == {}
        served = storm.served()
        assert len(set(served)) == len(served), "a pick was served twice"
        assert set(range(PICKS)) - set(served) <= killed, "a pick was lost"
        assert storm.lines("clashes") == [], "a GPU was given to two jobs"
        assert storm.lines("wrong") == [], "a pick was given more or fewer than it asked for"
        assert storm.places_lost() <= 0.05, "later ones were served first"
        assert storm.left_behind() == []
        assert [process.poll() for process in storm.watching()] == [None] * WATCHERS
        gpus.set("all", temp=95)
        hot = len(storm.watchers)
        assert storm.fired() == [7] * hot + [-signal.SIGTERM] * (WATCHERS - hot)
    finally:
        storm.close()
