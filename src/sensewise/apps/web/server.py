"""Start the page: a free port on 127.0.0.1, the browser, the server."""

import socket
import threading
import webbrowser
from collections.abc import Callable

from sensewise.errors import ConfigError

HOST, PORT, TRIES = "127.0.0.1", 8000, 20


def listen(port: int | None = None) -> socket.socket:
    """A socket on `port`; without one, on 8000 or the next port that is free."""
    for candidate in [port] if port is not None else range(PORT, PORT + TRIES):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, candidate))
            listener.listen(128)
        except (OSError, OverflowError):
            listener.close()
            continue
        return listener
    if port is None:
        raise ConfigError(f"ports {PORT} to {PORT + TRIES - 1} are all in use: give a free one with --port")
    raise ConfigError(f"port {port} is in use or not allowed: give another one, or leave --port out")


def serve(port: int | None, open_browser: bool, say: Callable[[str], None]) -> None:
    """Run until Ctrl-C."""
    try:
        import uvicorn

        from sensewise.apps.web.app import create_app
    except ImportError as error:
        raise ConfigError(f"the live page needs more packages ({error.name}): pip install 'sensewise[web]'") from error
    from sensewise.apps.web.recorder import Recorder

    app = create_app(Recorder())
    listener = listen(port)
    address = f"http://{HOST}:{listener.getsockname()[1]}"
    say(address)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", limit_concurrency=200, server_header=False))
    if open_browser:
        threading.Timer(1.0, webbrowser.open, [address]).start()
    server.run(sockets=[listener])
