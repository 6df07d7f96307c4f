"""llama.cpp's server with `llama-server`'s own flags, from the wheel `xllamacpp`."""

import argparse
import signal

import xllamacpp

parser = argparse.ArgumentParser(prog="llama-server")
parser.add_argument("--host", default="127.0.0.1")
parser.add_argument("--port", type=int, default=8080)
parser.add_argument("--model", required=True)
parser.add_argument("--alias", required=True)
parser.add_argument("--ctx-size", type=int, default=4096)
parser.add_argument("--parallel", type=int, default=1)
parser.add_argument("--threads", type=int, default=-1)
parser.add_argument("--split-mode", choices=["none", "layer", "row"], default="layer")
parser.add_argument("--cache-prompt", action=argparse.BooleanOptionalAction, default=True)
parser.add_argument("--cache-ram", type=int, default=8192, help="MiB of the host's memory for prompts")
parser.add_argument("--metrics", action="store_true")
arguments = parser.parse_args()

params = xllamacpp.CommonParams()
params.hostnames = [arguments.host]
params.port = arguments.port
params.model.path = arguments.model
params.model_alias = {arguments.alias}
params.n_ctx = arguments.ctx_size
params.n_parallel = arguments.parallel
params.cpuparams.n_threads = arguments.threads
params.cpuparams_batch.n_threads = arguments.threads
params.split_mode = {"none": 0, "layer": 1, "row": 2}[arguments.split_mode]
params.cache_prompt = arguments.cache_prompt
params.cache_ram_mib = arguments.cache_ram
params.endpoint_metrics = arguments.metrics
params.endpoint_slots = True
server = xllamacpp.Server(params)
print("llama-server: listening on", server.listening_address, flush=True)
signal.pause()
