#!/usr/bin/env bash
# Runs pytest on an arm64 that qemu emulates: `scripts/arm64.sh tests/codegen -k lanes`.
#
# Debian's Python for arm64, and wheels for it, are put into .arm64, beside the packages of the machine, which
# stay as they are. Needed are apt-get, dpkg-deb, a python3 with pip, and qemu-user-static, which root is
# given. `scripts/arm64.sh --check` only says whether all that can be had.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
here=$PWD/.arm64
host=${RUN:-python3}
root=$here/root
python=$root/usr/bin/python-arm64

fail() { echo "arm64: $*" >&2; exit 3; }

emulator() { command -v qemu-aarch64-static || command -v qemu-aarch64; }

apt() {
    timeout 300 apt-get -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 \
        -o Dir::State="$here/apt" -o Dir::State::status="$here/apt/status" -o Dir::Cache="$here/apt" "$@"
}

get_emulator() {
    emulator >/dev/null && return
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || fail "install qemu-user-static"
    export DEBIAN_FRONTEND=noninteractive
    timeout 180 apt-get -q update
    timeout 300 apt-get -q install -y --no-install-recommends qemu-user-static
    emulator >/dev/null || fail "qemu-user-static has no qemu-aarch64-static"
}

get_python() {
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || fail "this is not Debian"
    mkdir -p "$here"/apt/{lists,archives}/partial
    : >"$here/apt/status"
    apt update
    apt install -y --no-install-recommends --download-only python3 libstdc++6
    for package in "$here"/apt/archives/*.deb; do dpkg-deb -x "$package" "$root"; done
    # What Python takes for itself, and starts as a child, is this script: qemu runs no other programs.
    cat >"$python" <<END
#!/bin/sh
exec $(emulator) -L '$root' -0 '$python' '$root/usr/bin/python3' "\$@"
END
    chmod +x "$python"
    # A Neoverse N1, of which qemu can do all; it would show the processor of this machine.
    mkdir -p "$root/proc"
    cat >"$root/proc/cpuinfo" <<END
processor	: 0
BogoMIPS	: 50.00
Features	: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp
CPU implementer	: 0x41
CPU architecture: 8
CPU variant	: 0x3
CPU part	: 0xd0c
CPU revision	: 1
END
}

get_wheels() {
    local version platforms=()
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    for glibc in 17 24 27 28; do platforms+=(--platform "manylinux_2_${glibc}_aarch64"); done
    "$host" -m pip install --quiet --disable-pip-version-check --target "$here/site" \
        --only-binary=:all: "${platforms[@]}" --platform manylinux2014_aarch64 \
        --python-version "$version" --implementation cp \
        numpy llvmlite hypothesis mpmath pytest pytest-timeout pytest-xdist
}

if [ "${1-}" = --prepare ]; then # a process of its own, which ends at the first thing that fails
    rm -rf "$here/apt" "$root" "$here/site"
    get_emulator
    get_python
    get_wheels
    rm -rf "$here/apt"
    touch "$here/done"
    exit
fi
if [ ! -e "$here/done" ]; then
    mkdir -p "$here"
    scripts/arm64.sh --prepare >"$here/log" 2>&1 </dev/null \
        || { tail -n 5 "$here/log" >&2; fail "nothing to run on"; }
fi
[ "${1-}" != --check ] || exit 0
export PYTHONPATH=$PWD/src:$here/site
exec "$python" -m pytest -p no:cacheprovider --timeout 250 "$@"
