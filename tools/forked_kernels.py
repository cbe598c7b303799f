"""
Kernels that are forked from a process that has imported what each of them would import by itself.

A kernel that starts afresh takes two seconds of processor time before its first cell, for the same imports
each time.  In a forked one an import only gives a name, and a text has the same hash in all that one process
forks.  Where it looks for modules, its folder, environment and random numbers are as in a kernel of a user's,
and as such a one it ends soon after the process that started it, however that ended.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from multiprocessing import current_process, forkserver, get_context
from multiprocessing.process import BaseProcess
from random import SystemRandom
from typing import Any

import numpy as np
from jupyter_client.connect import LocalPortCache
from jupyter_client.launcher import launch_kernel
from jupyter_client.provisioning import local_provisioner
from pyspark import SparkContext

from tools import jvm_calls

IMPORTED = [
    "ipykernel.kernelapp",
    "cdckit.parts.worker_daemon",  # and with it all that cdckit hands on
    "cdckit.notebook.pictures",
    "cdckit.notebook.widgets",
    "matplotlib.pyplot",
]


def install() -> bool:
    """Let the kernels that this process starts be forked, where that is known to work; whether it is."""
    if sys.platform != "linux":
        return False
    # matplotlib asks for it when it is imported, and a kernel says it only afterwards.
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    keep_ports()
    forkserver.set_forkserver_preload(IMPORTED)
    forkserver.ensure_running()
    jupyter: Any = local_provisioner
    jupyter.launch_kernel = forked
    return True


def keep_ports() -> None:
    """
    Let the kernels of this process have ports that the system gives to nobody who asks for any port.

    Jupyter asks for such ones, lets them go, and tells the kernel: a JVM beside it that opens a connection in
    between has one of them, and the kernel dies.
    """
    ports: Any = LocalPortCache
    ports.find_available_port = _free_port


def _free_port(ports: Any, ip: str) -> int:
    while True:
        port = SystemRandom().randrange(15_000, 32_768)  # On Linux any port is one from there on.
        with suppress(OSError), socket.socket() as tried:
            tried.bind((ip, port))
            if port not in ports.currently_used_ports:
                ports.currently_used_ports.add(port)
                return port


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


def forked(command: list[str], *, env: dict[str, str], cwd: str | None = None, **more: Any) -> Any:
    """
    Start a kernel as jupyter_client's `launch_kernel` does; what it prints by itself goes nowhere.

    A kernel of another Python is started as ever.
    """
    if command[0] != sys.executable or "-m" not in command:
        return launch_kernel(command, cwd=cwd, env=env, **more)
    arguments = command[command.index("-m") + 1 :]
    folder = cwd or os.getcwd()
    given = (arguments, folder, env, _module_path(folder, env.get("PYTHONPATH")))
    # What is no daemon, multiprocessing waits for when this process ends: for ever.
    process = get_context("forkserver").Process(target=_run, args=given, name="kernel", daemon=True)
    process.start()
    assert process.pid is not None
    # Jupyter ends the group of a kernel's process, which must not be that of this one.
    while process.is_alive() and os.getpgid(process.pid) != process.pid:
        time.sleep(0.001)
    return Forked(process)


@cache
def _module_path(folder: str, given: str | None) -> Sequence[str]:
    """Where a Python that starts in a folder looks for modules; this one's path has what pytest put there."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if given is not None:
        env["PYTHONPATH"] = given
    ask = [sys.executable, "-c", "import json, sys; print(json.dumps(sys.path))"]
    said = subprocess.run(ask, cwd=folder, env=env, stdout=subprocess.PIPE, check=True).stdout
    path: list[str] = json.loads(said)
    return [each for each in path if each]


def _run(arguments: list[str], cwd: str, env: dict[str, str], module_path: Sequence[str]) -> None:
    os.setsid()
    _let_the_server_end()
    current_process().daemon = False  # It may have children of its own, as any kernel.
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    np.random.seed()
    jvm_calls.install()
    _share_context()
    sys.path[:] = module_path
    ours = __name__.partition(".")[0]
    for name in [name for name in sys.modules if name.partition(".")[0] == ours]:
        del sys.modules[name]
    # Nobody debugs such a kernel, and to be ready for it took most of the time of its start.
    sys.modules["debugpy"] = None  # type: ignore[assignment]
    # When the process that it was forked from ends, so does the kernel.  (ipykernel reads the variable
    # JPY_PARENT_PID when it is imported, which was long before.)
    sys.argv = [*arguments, f"--IPKernelApp.parent_handle={os.getppid()}"]
    from ipykernel.kernelapp import launch_new_instance

    launch_new_instance()


def _share_context() -> None:
    """Let a session that the kernel begins take up the context that its JVM has, if it has one."""
    begin: Any = vars(SparkContext)["_initialize_context"]

    def running_or_new(context: Any, conf: Any) -> Any:
        contexts = getattr(getattr(context._jvm, "org.apache.spark.SparkContext$"), "MODULE$")
        running = contexts.getActive()
        if running.isDefined():
            return context._jvm.JavaSparkContext.fromSparkContext(running.get())
        return begin(context, conf)

    setattr(SparkContext, "_initialize_context", running_or_new)  # noqa: B010


def _let_the_server_end() -> None:
    """
    Close what keeps the process alive that forks: it ends when nobody has this open any more.

    Each process that it forks is given it, to fork by it as well.  Python has no public name for it; under
    another one nothing is closed, and the test of kernels whose owner is killed fails.
    """
    server = getattr(forkserver, "_forkserver", None)
    held = getattr(server, "_forkserver_alive_fd", None)
    if held is not None:
        os.close(held)
        setattr(server, "_forkserver_alive_fd", None)  # noqa: B010
