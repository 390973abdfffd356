# SPDX-License-Identifier: Apache-2.0
"""Start the service, wait until it is ready, show one worked call with its bits, keep running until Ctrl-C.

`make serve` runs this. The service's log goes to standard error. If it does not come up, the log is shown and the exit
status is 1.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import time
from pathlib import Path
from types import FrameType
from typing import IO

import httpx

START_SECONDS = 60.0
STOP_SECONDS = 30.0
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# Printed and then run as it stands, so what the reader sees is what gave the bits. Hopper adds 32 products in one step
# and the 448 pushes the small ones out; Ada adds 16 at a time, so the first sixteen survive.
WORKED_CALL = """\
import numpy as np
from mmaemu import Bits, remote

a = np.full((1, 32), 0x08, np.uint8)  # e4m3 words: 32 times 2**-6 ...
a[0, 16] = 0x7E  # ... but for one 448
b = np.full((16, 32), 0x38, np.uint8).T  # ones, column-major
one = Bits("float32", np.array(0x3F800000, np.uint32))
for profile in ("h100-pcie-cublaslt12.8", "l40s"):
    out = remote.scaled_mm(
        Bits("float8_e4m3fn", a), Bits("float8_e4m3fn", b), one, one,
        out_dtype="float32", use_fast_accum=True, profile=profile,
    )
    word = out.array[0, :1]
    print(f"{profile:24} 0x{word[0]:08X} = {word.view(np.float32)[0]}   (exact sum: {448 + 31 / 64})")
"""


class Service:
    """The service as a child process. Its log is held back until `show_log`, so as not to cut into the greeting."""

    def __init__(self, host: str, port: int) -> None:
        command = [str(Path(sysconfig.get_path("scripts")) / "mmaemu"), "serve", "--host", host, "--port", str(port)]
        # A session of its own: Ctrl-C in the terminal reaches this tool alone, which then stops the service once.
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._held: list[str] | None = []
        self._lock = threading.Lock()
        assert self._process.stdout is not None
        self._pump = threading.Thread(target=self._copy_log, args=(self._process.stdout,), daemon=True)
        self._pump.start()

    def _copy_log(self, log: IO[str]) -> None:
        for line in log:
            with self._lock:
                if self._held is None:
                    sys.stderr.write(line)
                else:
                    self._held.append(line)

    def show_log(self) -> None:
        """What was held back, and from now on every line as it comes."""
        with self._lock:
            sys.stderr.write("".join(self._held or ()))
            self._held = None

    def is_ready(self, url: str) -> bool:
        """True once /healthz answers; False if the process ends first or START_SECONDS pass."""
        deadline = time.monotonic() + START_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                if httpx.get(f"{url}/healthz", timeout=2.0, trust_env=False).is_success:
                    return True
            except httpx.TransportError:
                pass
            time.sleep(0.1)
        return False

    def wait(self) -> int:
        return self._process.wait()

    def stop(self) -> None:
        """End the process and let the last of its log through. A second Ctrl-C meanwhile ends it at once."""
        for number in STOP_SIGNALS:
            signal.signal(number, lambda *_: self._process.kill())
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._pump.join(timeout=5.0)
        self.show_log()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8642, help="port to listen on (default: %(default)s)")
    options = parser.parse_args(argv)
    for number in STOP_SIGNALS:
        signal.signal(number, _interrupt)
    taken = why_taken(options.host, options.port)
    if taken:
        print(taken, file=sys.stderr)
        return 1
    service = Service(options.host, options.port)
    try:
        return run(service, options.host, options.port)
    except KeyboardInterrupt:
        print("\nStopping the service ...", flush=True)
        service.stop()
        print("Stopped.", flush=True)
        return 0
    finally:
        service.stop()


def run(service: Service, host: str, port: int) -> int:
    """Greet and wait. 1 if the service does not come up, fails the worked call or ends by itself."""
    url = address(host, port)
    if not service.is_ready(url):
        service.stop()
        print(f"The service did not become ready at {url}; its log is above.", file=sys.stderr)
        return 1
    print(f"mmaemu is ready at {url}\n\nOne call, with MMAEMU_URL={url}:\n", flush=True)
    print("".join(f"    {line}\n" for line in WORKED_CALL.splitlines()), flush=True)
    call = subprocess.run(
        [sys.executable, "-c", WORKED_CALL], env={**os.environ, "MMAEMU_URL": url}, capture_output=True, text=True
    )
    if call.returncode != 0:
        service.stop()
        print(f"The service is up, but the call failed; its log is above.\n{call.stderr}", file=sys.stderr)
        return 1
    print(f"{call.stdout}\nCtrl-C stops the service. Its log follows.", flush=True)
    service.show_log()
    status = service.wait()
    service.stop()
    print(f"The service ended by itself with status {status}; its log is above.", file=sys.stderr)
    return 1


def why_taken(host: str, port: int) -> str:
    """Why this address cannot be listened on; empty if it can. Asked first, for a plainer sentence than uvicorn's."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
    except (OSError, OverflowError) as error:
        return f"Cannot listen on {host} port {port}: {error}. Choose another: PORT=8643 make serve"
    return ""


def address(host: str, port: int) -> str:
    """The URL that reaches a server listening on `host`: a wildcard is reached through loopback."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
