"""Stands where a webhook is expected, and fails like one: with other certificates, or by not answering.

impostor.py ADDRESS PORT=MODE ...     MODE: the path of a PEM file (certificate and key), or reset
"""

import socket
import ssl
import struct
import sys
import threading
from collections.abc import Callable

AT_ONCE = struct.pack("ii", 1, 0)  # SO_LINGER: the connection ends with a reset


def reset(client: socket.socket) -> None:
    client.recv(1)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
    client.close()


def tls(file: str) -> Callable[[socket.socket], None]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)

    def shake(client: socket.socket) -> None:
        with context.wrap_socket(client, server_side=True) as shaken:
            shaken.recv(1)

    return shake


def serve(address: str, port: int, answer: Callable[[socket.socket], None]) -> None:
    listener = socket.create_server((address, port), backlog=32)
    while True:
        client, _ = listener.accept()
        threading.Thread(target=quietly, args=(answer, client), daemon=True).start()


def quietly(answer: Callable[[socket.socket], None], client: socket.socket) -> None:
    try:
        answer(client)
    except OSError as error:  # ssl.SSLError too: that the caller hangs up is what it is here for
        print(error, flush=True)


def main(address: str, *ports: str) -> None:
    for each in ports:
        port, _, mode = each.partition("=")
        answer = reset if mode == "reset" else tls(mode)
        threading.Thread(target=serve, args=(address, int(port), answer), daemon=True).start()
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
