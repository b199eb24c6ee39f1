"""How soon does the explorer answer a slider?

    make bench-explorer        or        .venv/bin/python benchmarks/explorer.py

Starts `dpsieve explore`, opens the default view, and asks as the page does, for every stop of each slider: at once
after the start, before the explorer has prepared the neighbours of what is shown, and in another process after a pause
as long as a reader needs to find the slider. Milliseconds from request to the last byte of the answer.
"""

import re
import subprocess
import sys
import time
from http.client import HTTPConnection, HTTPResponse
from urllib.parse import urlencode, urlsplit

from rich.console import Console
from rich.table import Table

from dpsieve.explore.inputs import Input
from dpsieve.explore.saved import Files
from dpsieve.explore.views import VIEWS

PAUSE = 4.0  # seconds in which the sliders are left alone
DRAG = 0.1  # seconds from stop to stop


class Page:
    """One browser's connection to the explorer."""

    def __init__(self, address: str) -> None:
        place = urlsplit(address)
        self.connection = HTTPConnection(place.netloc)
        self.headers: dict[str, str] = {}
        self.headers["Cookie"] = self.get(f"/?{place.query}").headers["set-cookie"].split(";")[0]

    def get(self, path: str) -> HTTPResponse:
        """Return an answer, read to its end."""
        self.connection.request("GET", path, headers=self.headers)
        answer = self.connection.getresponse()
        answer.read()
        return answer

    def milliseconds(self, **inputs: str) -> float:
        """Return the time of one answer of the default view."""
        start = time.perf_counter()
        assert self.get("/views/plan?" + urlencode(inputs)).status == 200
        return 1000 * (time.perf_counter() - start)


def main() -> None:
    sliders = {one.name: one for one in VIEWS["plan"].inputs(Files()) if one.stops}
    at_once, later = (drag_all(sliders, pause) for pause in (0.0, PAUSE))
    table = Table("slider", "stops", "at once: median", "longest", f"after {PAUSE:g} s: median", "longest")
    for name, one in sliders.items():
        times = [f"{t:.0f}" for each in (at_once[name], later[name]) for t in (each[len(each) // 2], each[-1])]
        table.add_row(name, str(len(one.stops)), *times)
    Console().print(table)


def drag_all(sliders: dict[str, Input], pause: float) -> dict[str, list[float]]:
    """Return the times of the stops of each slider, in an explorer of their own."""
    command = [sys.executable, "-m", "dpsieve", "explore", "--no-browser", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            page = Page(re.findall(r"http://\S+", process.stderr.readline())[0])
            print(f"the default view: {page.milliseconds():.0f} ms")
            time.sleep(pause)
            return {name: drag(page, one) for name, one in sliders.items()}
        finally:
            process.terminate()


def drag(page: Page, slider: Input) -> list[float]:
    """Return the times of all stops, from the default up and then down, in order of size."""
    at = list(slider.stops).index(slider.default) if slider.default in slider.stops else 0
    times = []
    for stop in [*slider.stops[at:], *slider.stops[:at][::-1]]:
        times.append(page.milliseconds(**{slider.name: stop}))
        time.sleep(DRAG)
    return sorted(times)


if __name__ == "__main__":
    main()
