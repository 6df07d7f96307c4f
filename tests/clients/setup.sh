#!/usr/bin/env bash
# setup.sh DIR: the clients that applications use, in a virtual environment at DIR. Running it again does nothing.
set -euo pipefail
dir=$1
stamp="$dir/ready-openai-3.57.0"
[ -e "$stamp" ] && exit 0
echo "setting up the OpenAI SDK in $dir" >&2
python3 -m venv "$dir"
"$dir/bin/pip" install --quiet --disable-pip-version-check openai==3.57.0
touch "$stamp"
