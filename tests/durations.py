"""A plugin of pytest that says where the time goes, and writes docs/development/durations.md: ``make durations``.

A thread looks every few milliseconds at what the test is doing, and charges the time to the innermost folder of src on
the stack: what NumPy, a compiler or a worker process takes is charged to the code that called it.
"""

import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "development" / "durations.md"
INTERVAL = 0.005
LONG = 2.0  # a test that takes more seconds needs a reason to be in the short suite
ELSEWHERE = "the tests themselves, browsers and other programs"

TEXT = """# Where the time of the tests goes

`make durations` writes this page. {tests} tests took {seconds:.0f} seconds{jobs}, {wall:.0f} on the clock.

| Folder | Seconds |
|---|---:|
{folders}

Tests that take more than {long:.0f} seconds, and why `make test` has them:

| Test | Seconds | Why |
|---|---:|---|
{tests_long}
"""


def folder_of(frame):
    """The folder of src in which the innermost frame is that is in src at all."""
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(ROOT / "src"):
            return str(path.parent.relative_to(ROOT))
        frame = frame.f_back
    return ELSEWHERE


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Watch a test and its fixtures."""
    item.spent, ended, thread = Counter(), threading.Event(), threading.get_ident()

    def watch():
        before = time.perf_counter()
        while not ended.wait(INTERVAL):
            now = time.perf_counter()
            item.spent[folder_of(sys._current_frames().get(thread))] += now - before
            before = now

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        return (yield)
    finally:
        ended.set()
        watcher.join()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if call.when == "teardown":
        mark = item.get_closest_marker("short")
        report.user_properties += [("spent", dict(item.spent)), ("why", mark.args[0] if mark else "")]
    return report


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Durations(config))


class Durations:
    """Adds up what the processes report."""

    def __init__(self, config):
        self.jobs = config.getoption("numprocesses", None)
        self.began = time.perf_counter()
        self.folders, self.seconds, self.why = Counter(), Counter(), {}

    def pytest_runtest_logreport(self, report):
        self.seconds[report.nodeid] += report.duration
        if report.when == "teardown":
            properties = dict(report.user_properties)
            self.folders.update(properties["spent"])
            self.why[report.nodeid] = properties["why"]

    def pytest_terminal_summary(self, terminalreporter):
        long = [(test, seconds) for test, seconds in self.seconds.most_common() if seconds > LONG]
        page = TEXT.format(
            tests=f"{len(self.seconds):,}",
            seconds=self.seconds.total(),
            jobs=f" in {self.jobs} processes" if self.jobs else "",
            wall=time.perf_counter() - self.began,
            folders="\n".join(f"| {folder} | {seconds:.1f} |" for folder, seconds in self.folders.most_common()),
            long=LONG,
            tests_long="\n".join(f"| `{test}` | {seconds:.1f} | {self.why[test]} |" for test, seconds in long),
        )
        PAGE.write_text(page, encoding="utf-8")
        terminalreporter.section(f"written to {PAGE.relative_to(ROOT)}")
        for test, seconds in long:
            if not self.why[test]:
                terminalreporter.line(f"{seconds:6.1f} s without a reason: {test}")
