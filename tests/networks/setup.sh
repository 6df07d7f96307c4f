#!/usr/bin/env bash
# setup.sh DIR: `ip`, by which a test makes hosts with networks of their own, at DIR/bin/ip: the machine's own where
# there is one, else Debian's, unpacked here and not installed. Running it again does nothing.
set -euo pipefail
dir=$1
[ -x "$dir/bin/ip" ] && exit 0
mkdir -p "$dir/bin"
if ip=$(PATH="$PATH:/usr/sbin:/sbin" command -v ip); then
  ln -sf "$ip" "$dir/bin/ip"
  exit 0
fi
if ! command -v apt-get >/dev/null; then
  echo "there is no ip and no apt-get to have it from: the tests that need it are left out" >&2
  exit 0
fi
echo "setting up iproute2 in $dir" >&2
mkdir -p "$dir/iproute2"
cd "$dir/iproute2"
# Only what `ip` itself is linked with, by the names that each version of Debian has for it; never the C library.
libraries() {
  apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances iproute2 |
    grep -E '^lib(bpf|bsd|cap|elf|md|mnl|zstd|lzma)[0-9][0-9a-z]*$'
}
download() {
  # shellcheck disable=SC2046 # one word a package
  apt-get download --quiet iproute2 $(libraries) 2>/dev/null
}
download || { apt-get update --quiet >&2 && download; }
for package in ./*.deb; do
  dpkg -x "$package" .
done
ip=$(find "$PWD" -path '*bin/ip' -type f | head -n 1)
folders=$(find "$PWD" -name '*.so.*' -printf '%h\n' | sort -u | paste -sd :)
printf '#!/bin/sh\nLD_LIBRARY_PATH="%s" exec "%s" "$@"\n' "$folders" "$ip" > ../bin/ip
chmod +x ../bin/ip
