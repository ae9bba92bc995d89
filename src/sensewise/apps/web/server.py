"""Start the page: a free port on 127.0.0.1, the browser, the server."""

import socket
import threading
import webbrowser
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sensewise.errors import ConfigError

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI

HOST, PORT, TRIES = "127.0.0.1", 8000, 20
MOST_REQUESTS = 200  # at once; more are answered with 503
SHUTDOWN_SECONDS = 5  # for answers under way, after Ctrl-C


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


def make_server(app: "FastAPI", log_level: str = "warning") -> "uvicorn.Server":
    """The server of an application, with its limits and deadlines."""
    import uvicorn

    from sensewise.apps.web.protocol import DeadlineProtocol

    config = uvicorn.Config(
        app,
        http=DeadlineProtocol,
        ws="none",
        log_level=log_level,
        limit_concurrency=MOST_REQUESTS,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        server_header=False,
    )
    return uvicorn.Server(config)


def serve(priors: Sequence[str], port: int | None, open_browser: bool, say: Callable[[str], None]) -> None:
    """Run until Ctrl-C; `priors` are the user's own, beside the bundled ones."""
    try:
        from sensewise.apps.web.app import create_app
        from sensewise.apps.web.recorder import Recorder

        server = make_server(create_app(Recorder(own=priors)))
    except ImportError as error:
        raise ConfigError(f"the live page needs more packages ({error.name}): install the extra `web`") from error
    listener = listen(port)
    address = f"http://{HOST}:{listener.getsockname()[1]}"
    say(address)
    if open_browser:
        threading.Timer(1.0, webbrowser.open, [address]).start()
    server.run(sockets=[listener])
