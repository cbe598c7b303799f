"""
Kernels that are forked from a process that has imported what each of them would import by itself.

A kernel that starts afresh takes two seconds of processor time before its first cell, for the same imports
each time.  In a forked one an import only gives a name; all else is as in a kernel of a user's.
"""

from __future__ import annotations

import os
import sys
import time
from multiprocessing import forkserver, get_context
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np
from jupyter_client.launcher import launch_kernel
from jupyter_client.provisioning import local_provisioner

IMPORTED = ["ipykernel.kernelapp", "cdckit", "cdckit.pictures", "cdckit.widgets", "matplotlib.pyplot"]


def install() -> None:
    """Let the kernels that this process starts be forked, where that is known to work."""
    if sys.platform != "linux":
        return
    # matplotlib asks for it when it is imported, and a kernel says it only afterwards.
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    forkserver.set_forkserver_preload(IMPORTED)
    forkserver.ensure_running()
    jupyter: Any = local_provisioner
    jupyter.launch_kernel = forked


class Forked:
    """A process of `multiprocessing`, as jupyter_client knows those of `subprocess`."""

    stdin = stdout = stderr = None

    def __init__(self, process: BaseProcess) -> None:
        self._process = process
        self.pid = process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self) -> int | None:
        self._process.join()
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.pid is not None and self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()


def forked(command: list[str], *, cwd: str, env: dict[str, str], **more: Any) -> Any:
    """
    Start a kernel as jupyter_client's `launch_kernel` does; what it prints by itself goes nowhere.

    A kernel of another Python is started as ever.
    """
    if command[0] != sys.executable or "-m" not in command:
        return launch_kernel(command, cwd=cwd, env=env, **more)
    arguments = command[command.index("-m") + 1 :]
    process = get_context("forkserver").Process(target=_run, args=(arguments, cwd, env), name="kernel")
    process.start()
    assert process.pid is not None
    # Jupyter ends the group of a kernel's process, which must not be that of this one.
    while process.is_alive() and os.getpgid(process.pid) != process.pid:
        time.sleep(0.001)
    return Forked(process)


def _run(arguments: list[str], cwd: str, env: dict[str, str]) -> None:
    os.setsid()
    os.chdir(cwd)
    os.environ.clear()
    # The process that it was forked from: when that ends, so does the kernel.
    os.environ.update(env, JPY_PARENT_PID=str(os.getppid()))
    time.tzset()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    np.random.seed()
    sys.argv = arguments
    from ipykernel.kernelapp import launch_new_instance

    launch_new_instance()
