# JupyterLab on the notebooks, opened at the tour:
#     docker build -t cdckit .
#     docker run --rm -p 127.0.0.1:8888:8888 cdckit
# then open the address that it prints, the one that begins with http://127.0.0.1:8888.
# What you change in the container is gone with it: add -v "$PWD/mine:/home/reader/cdckit/notebooks/mine".

FROM python:3.12-slim-bookworm

# The Java of this Debian is 17; without a screen it is a third of the size.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends make openjdk-17-jre-headless \
 && rm -rf /var/lib/apt/lists/*

RUN useradd --create-home reader
USER reader
WORKDIR /home/reader/cdckit

# The packages first: a change of the code does not fetch them again.
COPY --chown=reader requirements.txt ./
RUN python3 -m venv .venv \
 && .venv/bin/python -m pip install --no-cache-dir --disable-pip-version-check -r requirements.txt

COPY --chown=reader . .
RUN make .venv/ready .venv/classes.jsa

# On all interfaces of the container, since Docker does not reach its loopback; `-p 127.0.0.1:…` keeps it
# on this machine, and the address has a token.
EXPOSE 8888
CMD ["make", "lab", "IP=0.0.0.0", "LAB=--no-browser"]
