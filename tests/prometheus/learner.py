"""What lull learns of a card, in the slow and obvious way (src/gpu/power_learner.h)."""
import math
import statistics


class Learner:
    IDLE, LEAST, HEAVY, FULL = 1, 5, 50, 95
    MOST_WINDOWS, LONGEST_INTERVAL = 128, 600

    def __init__(self):
        self.idle, self.seconds, self.windows, self.stride, self.passed = math.nan, 0.0, [], 1, 0
        self.last, self.open, self.unused = None, [], 0
        self.kept, self.stale = {False: [], True: []}, {False: True, True: True}  # the windows when a median was last found

    def of(self, util):
        """Seconds learned from, and watts for each per cent, for a sample with this much work."""
        if math.isnan(self.idle):
            return 0.0, math.nan
        heavy = util >= self.HEAVY
        if self.stale[heavy]:
            self.kept[heavy], self.stale[heavy] = list(self.windows), False
        part = [one for one in self.kept[heavy] if not heavy or one[0] >= self.HEAVY]
        if not part:
            return 0.0, math.nan
        slope = statistics.median((watts - self.idle) / used for used, watts in part)
        return (self.seconds * len(part) / len(self.kept[heavy]) if slope > 0 else 0.0), slope

    def effort(self, util, watts):
        seconds, slope = self.of(util)
        if util < self.LEAST or seconds < 60:
            return math.nan
        return min(max(100 * (watts - self.idle) / (slope * util), 0), 1000)

    def sample(self, at, util, watts, limit):
        """{signal: value} by the samples before this one, which is learned from then."""
        known = 0 <= util <= 100 and 0 <= watts <= 10000
        signals = {}
        if known:
            signals = {"effort": self.effort(util, watts), "learned": self.of(util)[0], "idle_power": self.idle}
        self.see(at, util, watts, limit, known)
        return {name: value for name, value in signals.items() if not math.isnan(value)}

    def see(self, at, util, watts, limit, known):
        since = math.inf if self.last is None else at - self.last
        self.last = at
        if not known or not 0 < since <= self.LONGEST_INTERVAL:
            self.open = []
            return
        self.open.append((since, util, watts))
        span = sum(one[0] for one in self.open)
        if span >= 5:
            self.close(span, *(sum(one[0] * one[i] for one in self.open) / span for i in (1, 2)), limit)
            self.open = []

    def close(self, span, util, watts, limit):
        if util < self.IDLE:
            if not watts >= self.idle:
                self.idle, self.stale = watts, {False: True, True: True}
            return
        if util < self.LEAST or util >= self.FULL and watts * 100 < 35 * limit:
            return
        if util >= self.FULL and self.of(util)[0] >= 600 and self.effort(util, watts) < 45:
            return
        self.seconds += min(span, 30)
        self.passed += 1
        if self.windows and self.passed < self.stride:
            return
        self.passed = 0
        if len(self.windows) >= self.MOST_WINDOWS:
            self.windows, self.stride = self.windows[::2], 2 * self.stride
        self.windows.append((util, watts))
        self.unused += 1
        if self.unused * 16 >= len(self.windows):
            self.unused, self.stale = 0, {False: True, True: True}
