#!/usr/bin/env python3
"""A small engine with faults to order, for tests of denvd."""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, default=0)
parser.add_argument("--exit", type=int, help="end at once with this status")
parser.add_argument("--deaf", action="store_true", help="never listen")
parser.add_argument("--stubborn", action="store_true", help="ignore SIGTERM")
parser.add_argument("--children", action="store_true", help="start children, one in a session of its own")
parser.add_argument("--hang", help="answer no check while this file exists")
parser.add_argument("--left", help="write here when a client leaves a stream")
parser.add_argument("--say", help="print this variable")
parser.add_argument("--weights")
arguments = parser.parse_args()

if arguments.say:
    print(f"{arguments.say} is {os.environ[arguments.say]}!", flush=True)
if arguments.exit is not None:
    print("starting\n\nfatal: no such flag", file=sys.stderr)
    sys.exit(arguments.exit)
if arguments.stubborn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if arguments.children:
    subprocess.Popen(["sleep", "1000"])
    subprocess.Popen(["sleep", "1000"], start_new_session=True)
if arguments.deaf:
    print("loading", flush=True)
    time.sleep(1000)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == "/health":
            while arguments.hang and os.path.exists(arguments.hang):
                time.sleep(0.05)
            self.answer(200, "ok")
        elif self.path == "/stream":
            self.stream()
        elif self.path == "/deafen":
            self.answer(200, "ok")
            self.server.shutdown()
            self.server.server_close()
        else:
            self.answer(200, {
                "path": self.path,
                "headers": {name.lower(): value for name, value in self.headers.items()},
                "client": self.client_address[1],
                "env": dict(os.environ),
                "weights": arguments.weights,
                "pid": os.getpid(),
            })

    def do_POST(self):
        length = int(self.headers.get("content-length", 0))
        self.answer(200, {"read": self.rfile.read(length).decode()})

    def stream(self):
        """A chunk every 50 ms until the client leaves."""
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        try:
            for number in range(1000):
                text = f"data: {number}\n\n".encode()
                self.wfile.write(b"%x\r\n%s\r\n" % (len(text), text))
                self.wfile.flush()
                time.sleep(0.05)
        except OSError:
            if arguments.left:
                pathlib.Path(arguments.left).write_text("left")


ThreadingHTTPServer.request_queue_size = 128
server = ThreadingHTTPServer(("127.0.0.1", arguments.port), Handler)
server.serve_forever()
# It was deafened: it lives on without listening.
time.sleep(1000)
