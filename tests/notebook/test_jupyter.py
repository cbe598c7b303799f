"""In IPython, as in a notebook: frames that show themselves, work that is seen and can be interrupted."""

from __future__ import annotations

import builtins
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from threading import Timer
from typing import Any

import pytest
from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from traitlets.config import Config

from cdckit import show
from cdckit.errors import InvalidArgument, MissingColumns
from cdckit.notebook import jupyter
from cdckit.notebook.options import Options, options
from cdckit.outputs.scd import ScdType4


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """IPython, which knows `%load_ext cdckit`, and leaves nothing behind in this process."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    for name in ("__IPYTHON__", "display", "get_ipython"):
        monkeypatch.setattr(builtins, name, None, raising=False)
    on_interrupt = signal.getsignal(signal.SIGINT)
    made = InteractiveShell(config=Config({"HistoryManager": {"enabled": False}}))
    made.display_pub = CapturingDisplayPublisher()
    made.run_cell("%load_ext cdckit")
    yield made
    signal.signal(signal.SIGINT, on_interrupt)
    if (session := SparkSession.getActiveSession()) is not None:
        session.sparkContext.setLocalProperty("spark.jobGroup.id", None)


def test_an_error_of_ours_is_shown_at_the_line_that_a_reader_wrote(
    shell: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """None of our own lines stand in between; `%tb` has them all, and other errors are as ever."""

    def shown(cell: str) -> str:
        shell.run_cell(cell)
        return re.sub("\x1b\\[[0-9;]*m", "", capsys.readouterr().out)

    ours = shown("from cdckit import Priority\ndef mine():\n    return Priority('high')\nmine()")
    assert "return Priority('high')" in ours
    assert "InvalidArgument" in ours
    assert "arguments.py" not in ours
    assert "arguments.py" in shown("%tb")
    assert "ZeroDivisionError" in shown("1 / 0")


def forms(shell: Any, value: object) -> dict[str, str]:
    """What a notebook gets of the value that ends a cell, by kind."""
    found: dict[str, str] = shell.display_formatter.format(value)[0]
    return found


def test_a_frame_that_ends_a_cell_shows_itself(
    spark: SparkSession, shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = forms(shell, spark.createDataFrame([(1, None)], "number int, name string"))
    assert rows["text/plain"] == "number  name\n1       NULL\n(1 row)"
    assert '<td style="text-align:right' in rows["text/html"]
    of_two = forms(shell, ScdType4(spark.range(1), spark.range(2)))
    assert of_two["text/plain"] == "current\nid\n0\n(1 row)\n\nhistory\nid\n0\n1\n(2 rows)"
    assert of_two["text/html"].count("<table") == 2
    stream = forms(shell, spark.readStream.format("rate").load())
    assert stream == {"text/plain": "DataFrame[timestamp: timestamp, value: bigint]"}
    # A table of somebody else's, and whoever wants no job for a frame: Spark's own words.
    foreign = forms(shell, spark.range(1).withColumnRenamed("id", "guid"))
    monkeypatch.setattr(options, "eager", False)
    for words in (foreign, forms(shell, spark.range(1))):
        assert list(words) == ["text/plain"]
        assert words["text/plain"].startswith("DataFrame[")


def test_what_fails_when_it_is_shown_is_one_sentence(
    spark: SparkSession, shell: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(batches: Any) -> Any:
        raise MissingColumns("f", ["a"], ["b"])
        yield

    of_spark = spark.range(1).select(F.raise_error(F.lit("merge() needs a key.")))
    of_a_worker = spark.range(1).mapInArrow(fail, "id long")
    for wrong, told in (
        (of_spark, "merge() needs a key."),
        (of_a_worker, "MissingColumns: f() needs the columns a; the DataFrame has b."),
    ):
        for value in (wrong, show(wrong)):
            assert forms(shell, value)["text/html"] == ""
            sentence, more = capsys.readouterr().out.splitlines()
            assert (sentence.endswith(told), more) == (True, "(All of it: %tb)")
    shell.run_cell("%tb")
    assert "Traceback" in capsys.readouterr().out


def slow(spark: SparkSession, seconds: float) -> DataFrame:
    """Two tasks, each of which takes so long."""

    def wait(batches: Any) -> Any:
        for batch in batches:
            time.sleep(seconds)
            yield batch

    return spark.range(0, 2, 1, 2).mapInArrow(wait, "id long")


def test_work_that_takes_long_is_seen_and_a_cell_s_line_is_its_own(
    spark: SparkSession, shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An update of the line of another cell would change those of all cells before it."""
    monkeypatch.setattr(jupyter, "_PATIENCE", 0.05)
    monkeypatch.setattr(jupyter, "_PAUSE", 0.05)
    monkeypatch.setattr(options, "progress", True)
    sent = shell.display_pub.outputs
    shell.push({"slow": slow(spark, 0.3), "options": options})
    shell.run_cell("slow.count()")
    first = sent[0]
    assert re.fullmatch(r"Spark: \d of 2 tasks, \d s", first["data"]["text/plain"])
    assert re.match(r'<progress value="\d" max="2"', first["data"]["text/html"])
    assert (sent[-1]["data"], sent[-1]["update"]) == ({"text/plain": ""}, True)
    assert {each["transient"]["display_id"] for each in sent} == {first["transient"]["display_id"]}
    before = len(sent)
    shell.run_cell("slow.count()")
    assert not sent[before].get("update")
    assert sent[before]["transient"]["display_id"] != first["transient"]["display_id"]
    before = len(sent)
    shell.run_cell("options.progress = False\nslow.count()")
    assert len(sent) == before


def test_a_cell_that_is_interrupted_stops_its_jobs_and_the_next_one_works(
    spark: SparkSession, shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to the call that was interrupted is nobody's."""
    monkeypatch.setattr(options, "progress", False)
    shell.push({"slow": slow(spark, 60), "spark": spark})
    Timer(1.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    begun = time.monotonic()
    assert isinstance(shell.run_cell("slow.count()").error_in_exec, KeyboardInterrupt)
    active = "spark.sparkContext.statusTracker().getActiveJobsIds()"
    left = shell.run_cell(f"import time\nwhile {active}:\n    time.sleep(0.1)\nspark.range(7).count()")
    assert left.result == 7
    assert time.monotonic() - begun < 30


def test_an_option_that_there_is_not_is_refused() -> None:
    """It would be set, and nothing would change."""
    with pytest.raises(InvalidArgument, match=r"zone, rows, eager, progress; .*Is it options\.zone\?"):
        Options().timezone = "Europe/Berlin"  # type: ignore[attr-defined]


def test_options_say_what_they_take() -> None:
    """A wrong name of a zone is found where it is chosen, not where a table is displayed."""
    options = Options()
    options.zone = "Europe/Berlin"
    assert str(options.zone) == "Europe/Berlin"
    for name, wrong in (
        ("zone", "Berlin"),
        ("zone", 1),
        ("rows", 0),
        ("rows", True),
        ("eager", 1),
        ("progress", "no"),
    ):
        with pytest.raises(InvalidArgument, match=f"options\\(\\) needs {name} to be"):
            setattr(options, name, wrong)
    assert (str(options.zone), options.rows) == ("Europe/Berlin", 20)
