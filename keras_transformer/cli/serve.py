r"""Serve saved models over HTTP: translate, tag, classify, fill, generate; a page that shows how.

  keras-transformer serve dates shakespeare
  curl -s localhost:8000/api/translate -H 'Content-Type: application/json' \
      -d '{"texts": ["April 22, 2019"]}'

It needs pip install "keras3-transformer[serve]". /docs describes all requests; a model is named as
NAME=FILE, or by its file or folder. It listens to this machine alone, unless --host names another
address. SIGTERM and Control-C end it after it has answered what it has accepted.
"""

import argparse
import logging
import os
import socket
import sys

from ..checks import check
from ..serving.configuration import LOG, Limits
from .files import MODEL, add_engine

KEY = "KERAS_TRANSFORMER_API_KEY"
LIMITS = {
    "max_body": "bytes per request",
    "max_texts": "texts per request",
    "max_tokens": "tokens per text",
    "max_queue": "texts that wait for a model",
    "max_streams": "answers that a model streams at a time",
    "max_batch": "texts answered together",
    "max_compiled": "tokens of the longest text for which programs are compiled at the start",
    "timeout": "time of a request",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options to a parser."""
    add = parser.add_argument
    add("models", nargs="+", metavar="MODEL", help=f"{MODEL}; or NAME=FILE")
    add("--host", default="127.0.0.1", help="address to listen to (default: 127.0.0.1)")
    add("--port", type=int, default=8000, help="port; 0: any that is free (default: 8000)")
    add("--api-key", metavar="KEY", help=f"key that clients must send (default: ${KEY}, or none)")
    origins = "web sites whose pages may ask, or '*' (default: the server's own page alone)"
    add("--cors", nargs="+", default=[], metavar="ORIGIN", help=origins)
    add("--log-texts", action="store_true", help="also log the texts of requests")
    add_engine(parser)
    add = parser.add_argument_group("limits").add_argument
    for name, text in LIMITS.items():
        default = getattr(Limits, name)
        metavar = "SECONDS" if name == "timeout" else "N"
        shown = f"{text} (default: {default:,})"
        option = "--" + name.replace("_", "-")
        add(option, type=type(default), default=default, metavar=metavar, help=shown)


def run(options: argparse.Namespace) -> None:
    """Serves until a signal ends it."""
    try:
        import uvicorn

        from .. import backend
        from ..serving.app import make_app
        from ..serving.models import load_models
    except ImportError as error:
        sys.exit(f'{error}. Install it: pip install "keras3-transformer[serve]".')
    key = os.environ.get(KEY) if options.api_key is None else options.api_key
    check(key != "", f"The API key must not be empty: leave it out, or unset {KEY}", api_key=key)
    check(0 <= options.port < 2**16, "--port must be from 0 to 65535", port=options.port)
    limits = Limits(**{name: getattr(options, name) for name in LIMITS})
    listening = listen(options.host, options.port)
    if backend.name() == "torch":  # two batches at a time, of one model or of several, share them
        backend.set_num_threads(max(1, backend.num_cores() // 2))
    models = load_models(options.models, options.engine)
    LOG.addHandler(logging.StreamHandler())  # the root's may be a library's
    LOG.handlers[-1].setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    LOG.setLevel(logging.DEBUG if options.log_texts else logging.INFO)
    LOG.propagate = False
    app = make_app(models, limits, key, options.cors)
    host, port = listening.getsockname()[:2]
    host = f"[{host}]" if ":" in host else host
    print(f"Serving {', '.join(models)} at http://{host}:{port} (see /docs)", flush=True)
    config = uvicorn.Config(app, log_config=None, log_level="warning", access_log=False)
    uvicorn.Server(config).run(sockets=[listening])


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens.

    Raises:
        OSError: The port is taken, or the address is not one of this machine.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)  # from now on the port is taken; who comes early waits
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or f"{error}"
        cure = "Choose another --port or --host."
        raise OSError(f"Cannot listen to port {port} of {host}: {reason}. {cure}") from None
    return listening
