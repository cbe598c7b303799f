"""
Say in one sentence what this machine lacks, before anything is installed.

    python3 tools/check_machine.py            Python and Java
    python3 tools/check_machine.py network    what to do when the packages could not be fetched

Runs on Python 3.7 and newer, so that one that is too old can be told so.
"""

import os
import re
import shutil
import subprocess
import sys

PYTHON = (3, 11)
JAVA = 17

INSTALL_JAVA = (
    "install a JDK of version 17 or newer (Debian and Ubuntu: apt install openjdk-17-jdk-headless; "
    "macOS: brew install openjdk@17; conda: conda env create -f environment.yml) "
    "and see that JAVA_HOME names it, or that JAVA_HOME is not set and `java` is on the PATH"
)
NO_PACKAGES = (
    "The Python packages could not be installed (the reason is in .venv/install.log): most often "
    "there is no way to the package index, so connect to the network, or set PIP_INDEX_URL to a "
    "mirror that you can reach, and run the same command again."
)


def python_problem(version=sys.version_info):
    if tuple(version[:2]) >= PYTHON:
        return None
    return (
        "cdckit needs Python {}.{} or newer, and this is {}.{}: install a newer one and call make with it, "
        "as in `make PYTHON=python3.12 demo`.".format(*(PYTHON + tuple(version[:2])))
    )


def java_version(text):
    """The major version in what `java -version` prints: 17 of "17.0.15", 8 of "1.8.0_402"."""
    found = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if not found:
        return None
    first, second = int(found.group(1)), int(found.group(2) or 0)
    return second if first == 1 else first


def java_problem():
    # As Spark's own start script looks for it.
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=os.path.join(home, "bin")) if home else shutil.which("java")
    if java is None:
        where = f"in JAVA_HOME ({home})" if home else "on the PATH"
        return f"Spark needs Java, and there is no `java` {where}: {INSTALL_JAVA}."
    # It prints its version on stderr, as it has since 1995.
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    version = java_version(said.stderr + said.stdout)
    if version is None:
        return f"Spark needs Java, and `java -version` does not work here: {INSTALL_JAVA}."
    if version < JAVA:
        return f"Spark needs Java {JAVA} or newer, and this is {version}: {INSTALL_JAVA}."
    return None


def main(arguments):
    if arguments == ["network"]:
        problems = [NO_PACKAGES]
    else:
        problems = [problem for problem in (python_problem(), java_problem()) if problem]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
