"""A headless Chromium, spoken to through its DevTools pipe: no driver, no package of Python's."""
import base64
import json
import os
import select
import subprocess
import tempfile
import time

FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
         "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
         "--remote-debugging-pipe"]
LIMIT = 120.0


class Browser:
    def __init__(self, program):
        self.folder = tempfile.TemporaryDirectory(prefix="lull-page-", ignore_cleanup_errors=True)
        to_read, self.to = os.pipe()
        self.back, to_write = os.pipe()

        def pipes():  # Chromium reads descriptor 3 and writes to 4
            high = [os.dup2(fd, 100 + i) for i, fd in enumerate((to_read, to_write))]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen([program, *FLAGS, f"--user-data-dir={self.folder.name}", "about:blank"],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        preexec_fn=pipes, close_fds=False)
        os.close(to_read)
        os.close(to_write)
        self.number = 0
        self.text = b""
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")

    def close(self):
        os.close(self.to)  # it ends with its pipe
        try:
            self.process.wait(timeout=LIMIT)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            os.close(self.back)
            self.folder.cleanup()

    def message(self, end):
        while b"\0" not in self.text:
            assert select.select([self.back], [], [], max(0, end - time.monotonic()))[0], "the browser does not answer"
            more = os.read(self.back, 1 << 20)
            assert more, "the browser has ended"
            self.text += more
        one, _, self.text = self.text.partition(b"\0")
        return json.loads(one)

    def call(self, method, **params):
        self.number += 1
        question = {"id": self.number, "method": method, "params": params}
        if self.session:
            question["sessionId"] = self.session
        os.write(self.to, json.dumps(question).encode() + b"\0")
        end = time.monotonic() + LIMIT
        while True:
            answer = self.message(end)
            if answer.get("id") == self.number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]

    def show(self, file, width, height=900, dark=False):
        """Opens a file or an address; errors of its script are kept in window.errors."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 600)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.addScriptToEvaluateOnNewDocument",
                  source="window.errors = []; addEventListener('error', e => errors.push(e.message));"
                         "addEventListener('securitypolicyviolation', e => errors.push(e.violatedDirective + ' ' + e.blockedURI));")
        url = file if str(file).startswith("http") else f"file://{file}"
        self.call("Page.navigate", url=url)
        end = time.monotonic() + LIMIT
        while self.ask("location.href + ' ' + document.readyState") != f"{url} complete":
            assert time.monotonic() < end, "the page does not load"

    def ask(self, expression):
        """The value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def point(self, x, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def picture(self, file):
        """All of the page, as people would see it by scrolling down."""
        height = int(self.ask("document.documentElement.scrollHeight"))
        width = int(self.ask("innerWidth"))
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True,
                         clip={"x": 0, "y": 0, "width": width, "height": min(height, 6000), "scale": 1})
        with open(file, "wb") as out:
            out.write(base64.b64decode(shot["data"]))
