#!/usr/bin/env bash
# setup.sh DIR: podman, and a registry for it to pull from, for tests that start engines from images: at DIR/bin/podman and
# DIR/bin/registry. They are Debian's, unpacked here and not installed, with settings of their own. Running it again does
# nothing.
set -euo pipefail
dir=$1
stamp=ready-1
[ -e "$dir/$stamp" ] && exit 0
if ! command -v apt-get >/dev/null; then
  echo "there is no apt-get to have podman from: the tests that need it are left out" >&2
  exit 0
fi
echo "setting up podman and a registry in $dir" >&2
rm -rf "$dir"
mkdir -p "$dir/bin" "$dir/packages" "$dir/home/.config/containers"
cd "$dir/packages"
programs="podman conmon runc catatonit docker-registry"
# Only what the programs themselves are linked with and a small machine may lack, by the names that each version of Debian
# has for it; never the C library.
libraries() {
  # shellcheck disable=SC2086 # one word a package
  apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances $programs |
    grep -E '^lib(assuan|devmapper|glib2\.0|gpg-error|gpgme|pcre2-8|seccomp|subid)[-.0-9a-z]*$' | sort -u
}
download() {
  # shellcheck disable=SC2046,SC2086 # one word a package
  apt-get download -qq $programs $(libraries) 2>/dev/null
}
download || { apt-get update --quiet >&2 && download; }
for package in ./*.deb; do
  dpkg -x "$package" .
done
rm ./*.deb
libraries=$(find "$PWD" -name '*.so.*' -printf '%h\n' | sort -u | paste -sd :)
# wrapper NAME PROGRAM [LINE]: what is started without an environment still finds its libraries.
wrapper() {
  program=$(find "$PWD" -path "*bin/$2" -type f | head -n 1)
  printf '#!/bin/sh\n%sLD_LIBRARY_PATH="%s" exec "%s" "$@"\n' "${3:-}" "$libraries" "$program" > "../bin/$1"
  chmod +x "../bin/$1"
}
dir=$(cd .. && pwd)
wrapper conmon conmon
wrapper runc runc
wrapper registry docker-registry
wrapper podman podman "export CONTAINERS_CONF='$dir/containers.conf' HOME='$dir/home'"$'\n'
cat > "$dir/containers.conf" <<CONF
[containers]
# Podman's own are more than a machine may allow.
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
init_path = "$(find "$PWD" -name catatonit -path '*bin/*' -type f | head -n 1)"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "none"
conmon_path = ["$dir/bin/conmon"]
[engine.runtimes]
runc = ["$dir/bin/runc"]
CONF
echo '{"default": [{"type": "insecureAcceptAnything"}]}' > "$dir/home/.config/containers/policy.json"
touch "$dir/$stamp"
