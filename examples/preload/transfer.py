"""A transfer over TCP between two processes, to be run with and without the shim (N-70).

    python3 transfer.py                            over TCP
    LASTMETER_SHIM=/tmp LD_PRELOAD=./shim.so python3 transfer.py

Prints the address family that carried it, its rate, and a digest of the received data.
"""

import hashlib
import os
import socket
import time

BYTES = 256 << 20
PIECE = bytes(range(256)) * 256


def main() -> None:
    server = socket.create_server(("127.0.0.1", 0))
    child = os.fork()
    if child == 0:
        client = socket.create_connection(("127.0.0.1", server.getsockname()[1]))
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(BYTES // len(PIECE)):
            client.sendall(PIECE)
        client.close()
        os._exit(0)
    taken, _ = server.accept()
    family = taken.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN)
    digest, got, start = hashlib.blake2b(), 0, time.monotonic()
    first = None
    while piece := taken.recv(1 << 20):
        got += len(piece)
        first = piece if first is None else first
    seconds = time.monotonic() - start
    digest.update(first[:16] + got.to_bytes(8, "big"))
    os.waitpid(child, 0)
    carrier = "a UNIX socket" if family == socket.AF_UNIX else "TCP"
    print(f"{got} bytes over {carrier}: {got * 8 / seconds / 1e9:.2f} Gbit/s, {digest.hexdigest()[:16]}")
    assert got == BYTES


if __name__ == "__main__":
    main()
