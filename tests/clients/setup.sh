#!/usr/bin/env bash
# setup.sh DIR: what is tried against denv from outside: the clients that applications use, in a virtual environment at
# DIR, and kubectl at DIR/bin/kubectl. Running it again does nothing.
set -euo pipefail
dir=$1

stamp="$dir/ready-openai-3.57.0"
if [ ! -e "$stamp" ]; then
  echo "setting up the OpenAI SDK in $dir" >&2
  python3 -m venv "$dir"
  "$dir/bin/pip" install --quiet --disable-pip-version-check openai==3.57.0
  touch "$stamp"
fi

# The machine's own kubectl where there is one; else Debian's, unpacked here and not installed.
if [ ! -x "$dir/bin/kubectl" ]; then
  if kubectl=$(command -v kubectl); then
    ln -sf "$kubectl" "$dir/bin/kubectl"
  elif ! command -v apt-get >/dev/null; then
    echo "there is no kubectl and no apt-get to have it from: the test that needs it is left out" >&2
  else
    echo "setting up kubectl in $dir" >&2
    mkdir -p "$dir/kubernetes"
    cd "$dir/kubernetes"
    apt-get download --quiet kubernetes-client 2>/dev/null ||
      { apt-get update --quiet >&2 && apt-get download --quiet kubernetes-client >&2; }
    dpkg -x kubernetes-client_*.deb .
    ln -sf ../kubernetes/usr/bin/kubectl ../bin/kubectl
  fi
fi
