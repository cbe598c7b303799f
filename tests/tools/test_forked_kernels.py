"""Kernels that are forked are as those that start afresh, no two the same, and end with their owner."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tools import forked_kernels

ROOT = Path(__file__).parents[2]
OWNER = """
import json, os, signal, sys, traceback
from pathlib import Path
from jupyter_client import KernelManager
sys.path.insert(0, sys.argv[1])
from tools import forked_kernels
forked_kernels.IMPORTED = ["ipykernel.kernelapp"]

def begun(folder):
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=folder, env={**os.environ, "SAID": "this"})
    return manager

def asked(manager):
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=120)
    said = []
    code = Path("asked.py").read_text()
    client.execute_interactive(code, output_hook=lambda message: said.append(message["content"].get("text")))
    return json.loads("".join(each for each in said if each))

if __name__ == "__main__":
    forked_kernels.keep_ports()
    managers = [begun("inside")]
    forked_kernels.install()
    managers += [begun("inside"), begun("inside"), begun(None)]
    try:
        print(json.dumps([asked(each) for each in managers]), flush=True)
    except Exception:
        traceback.print_exc()  # before it is killed
    finally:
        os.kill(os.getpid(), signal.SIGKILL)
"""
"""A process with a kernel that is started as ever and three forked ones, killed when they have answered."""

ASKED = """
import importlib.util, json, multiprocessing, os, sys
import numpy as np
print(json.dumps({
    "random": np.random.random(), "pid": os.getpid(), "parent": os.getppid(),
    "folder": os.getcwd(), "path": sys.path,
    "variable": os.environ["SAID"], "tools": [str(importlib.util.find_spec("tools")), "tools" in sys.modules],
    "daemon": multiprocessing.current_process().daemon,
}))
"""


def runs(pid: int) -> bool:
    """Whether a process is there; one that has ended and that nobody has asked for is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the latter where it ends while we look
        return False


ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="kernels are forked on Linux alone")
ENDING = """
import os, sys
sys.path.insert(0, sys.argv[1])
from tools import forked_kernels
forked_kernels.IMPORTED = ["ipykernel.kernelapp"]

if __name__ == "__main__":
    forked_kernels.install()
    started = forked_kernels.forked([sys.executable, "-m", "ipykernel_launcher"], env=dict(os.environ))
    print(started.pid)
"""
"""A process that comes to its end while a forked kernel runs."""


def answers(folder: Path, script: str) -> str:
    """What a process prints that runs in a folder and knows of no module here but by its argument."""
    (folder / "owner.py").write_text(script)
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "owner.py", str(ROOT)]
    # What it leaves behind may hold its output open: into a file.
    with (folder / "said").open("w") as said:
        subprocess.run(command, cwd=folder, env=env, stdout=said, timeout=240, check=False)
    return (folder / "said").read_text()


def end(pids: list[int]) -> bool:
    """Whether all processes end by themselves, in a minute at the latest; none is left."""
    until = time.monotonic() + 60
    while any(map(runs, pids)) and time.monotonic() < until:
        time.sleep(0.05)
    left = [pid for pid in pids if runs(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return not left


@ON_LINUX
def test_forked_kernels_are_as_others_and_end_when_their_owner_is_killed(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "asked.py").write_text(ASKED)
    fresh, *forked = told = json.loads(answers(tmp_path, OWNER))
    owners = [each.pop("parent") for each in told]
    assert end([*(each.pop("pid") for each in told), owners[1]])
    assert owners == [owners[0], *[owners[1]] * 3]
    assert owners[0] != owners[1]
    assert len({each.pop("random") for each in told}) == 4
    assert fresh["folder"] == str(tmp_path / "inside")
    assert forked == [fresh, fresh, {**fresh, "folder": str(tmp_path)}]


@ON_LINUX
def test_a_process_does_not_wait_for_its_forked_kernels(tmp_path: Path) -> None:
    assert end([int(answers(tmp_path, ENDING))])


def test_a_kernel_of_another_python_is_started_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked_kernels, "launch_kernel", lambda command, **more: (command, more))
    started = forked_kernels.forked(["other", "-m", "kernel"], env={})
    assert started == (["other", "-m", "kernel"], {"cwd": None, "env": {}})
