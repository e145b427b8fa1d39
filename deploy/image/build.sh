#!/bin/sh
# Builds the images of deploy/Dockerfile with buildah, podman or docker, whichever is installed.
#
#   deploy/image/build.sh [server] [audit] [dev] [etcd]      without a name: server and etcd
#
# If no image registry answers, mmdebstrap creates the build image (DEBIAN in the Dockerfile) from a
# Debian mirror, once. The resulting images are the same either way.
# Environment: BUILDER (buildah, podman, docker), TAG (the version), REGISTRY (default: localhost),
# DEBIAN (an image to build on), DAY (of the packages' lists; default: today).
set -eu
cd "$(dirname "$0")/../.."

[ $# -gt 0 ] || set -- server etcd
for name in "$@"; do
    case $name in server | audit | dev | etcd) ;; *)
        echo "build.sh builds server, audit, dev or etcd, not $name" >&2
        exit 2
        ;;
    esac
done

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml | head -n 1)
tag=${TAG:-$version}
registry=${REGISTRY:-localhost}
local_debian=localhost/aerobee-debian:bookworm
pinned_debian=$(sed -n 's/^ARG DEBIAN=//p' deploy/Dockerfile)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

find_builder() {
    for candidate in ${BUILDER:-buildah podman docker}; do
        # The docker command is often installed without a running daemon.
        if command -v "$candidate" >/dev/null 2>&1 && "$candidate" info >/dev/null 2>&1; then
            echo "$candidate"
            return
        fi
    done
    if [ -z "${BUILDER:-}" ] && [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
        apt-get update -qq >/dev/null 2>&1 || true
        if DEBIAN_FRONTEND=noninteractive apt-get install -y -qq buildah runc >/dev/null 2>&1; then
            echo buildah
            return
        fi
    fi
    echo "no buildah, podman or running docker is here: install one (Debian: apt-get install" \
        "buildah runc)" >&2
    exit 1
}

has_image() {
    case $builder in
    buildah) buildah inspect --type image "$1" >/dev/null 2>&1 ;;
    *) "$builder" image inspect "$1" >/dev/null 2>&1 ;;
    esac
}

# An import has only a root file system: the image that is built on it sets PATH.
import_root() {
    case $builder in
    buildah)
        echo "FROM scratch
ADD root.tar /
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" > "$work/Dockerfile"
        buildah build --quiet --isolation chroot -t "$2" -f "$work/Dockerfile" "$1" >/dev/null
        ;;
    *)
        "$builder" import \
            --change ENV=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
            "$1/root.tar" "$2" >/dev/null
        ;;
    esac
}

# The build image: the pinned one from a registry, or Debian from packages.
choose_debian() {
    if [ -n "${DEBIAN:-}" ]; then
        echo "$DEBIAN"
        return
    fi
    if has_image "$pinned_debian" || timeout 120 "$builder" pull "$pinned_debian" >/dev/null 2>&1
    then
        echo "$pinned_debian"
        return
    fi
    if ! has_image "$local_debian"; then
        echo "no registry gives $pinned_debian: Debian is made from its packages (two minutes)" >&2
        if ! command -v mmdebstrap >/dev/null 2>&1; then
            apt-get update -qq >/dev/null 2>&1 || true
            if ! apt-get install -y -qq mmdebstrap >/dev/null 2>&1; then
                echo "install mmdebstrap, or name an image of Debian 12 as DEBIAN" >&2
                exit 1
            fi
        fi
        debian=http://deb.debian.org
        mmdebstrap --quiet --variant=apt --include=binutils,ca-certificates,python3,python3-pip \
            --aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Languages "none"' \
            --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
            --dpkgopt='path-exclude=/usr/share/locale/*' bookworm "$work/root.tar" \
            "deb $debian/debian bookworm main" "deb $debian/debian bookworm-updates main" \
            "deb $debian/debian-security bookworm-security main" >&2
        import_root "$work" "$local_debian"
        rm "$work/root.tar"
    fi
    echo "$local_debian"
}

# A proxy's certificates and a mirror of PyPI, from this machine's pip configuration; see pip.sh.
write_secrets() {
    for bundle in "${PIP_CERT:-}" "${SSL_CERT_FILE:-}" "${REQUESTS_CA_BUNDLE:-}"; do
        if [ -s "$bundle" ]; then
            cp "$bundle" "$work/ca"
            break
        fi
    done
    [ -s "$work/ca" ] || : > "$work/ca"
    # It may hold a password.
    (umask 077 && : > "$work/pip")
    {
        echo "[global]"
        for setting in index-url extra-index-url trusted-host; do
            variable=PIP_$(echo "$setting" | tr a-z- A-Z_)
            value=$(printenv "$variable" || python3 -m pip config get "global.$setting" 2>/dev/null \
                || true)
            [ -z "$value" ] || echo "$setting = $value"
        done
    } > "$work/pip"
}

# What is built, to show progress; then the arguments of this build.
run_builder() {
    made=$1
    shift
    set -- --build-arg "SOURCE_DATE_EPOCH=$epoch" "$@"
    case $builder in
    # Uses chroot instead of a container: works where containers do not.
    buildah) set -- buildah build --isolation chroot --layers --timestamp "$epoch" "$@" ;;
    podman) set -- podman build --isolation chroot --layers --timestamp "$epoch" "$@" ;;
    docker) set -- env DOCKER_BUILDKIT=1 docker build --network host "$@" ;;
    esac
    if ! "$@" > "$work/log" 2>&1; then
        tail -n 40 "$work/log" >&2
        echo "cannot build $made; the end of what $builder said is above" >&2
        exit 1
    fi
}

build() {
    image=$1
    shift
    echo "building $image with $builder"
    started=$(date +%s)
    run_builder "$image" -t "$image" "$@"
    echo "$image: built in $(($(date +%s) - started)) s, $(sizes "$image")"
}

build_aerobee() {
    image=$1
    target=$2
    set -- -f deploy/Dockerfile \
        --secret "id=ca,src=$work/ca" --secret "id=pip,src=$work/pip" \
        --build-arg "DEBIAN=$debian_image" --build-arg "DAY=$day" \
        --build-arg "VERSION=$version" --build-arg "REVISION=$revision" \
        --build-arg "CREATED=$created" .
    build "$image" --target "$target" "$@"
    # Its list would be the server's, because only developers use this etcd.
    [ "$target" != dev ] || return 0
    # The stage has run already: this is a copy.
    run_builder "the bill of materials" --target "sbom-of-$target" \
        --output "type=local,dest=$work/sbom" "$@"
    mkdir -p dist
    bill=dist/$(echo "${image##*/}" | tr : -).cdx.json
    cp "$work/sbom/sbom.cdx.json" "$bill"
    echo "  what is in it:  $bill"
}

# Size on a node, and size of the download.
sizes() {
    case $builder in
    docker) docker save "$1" | gzip > "$work/image.tar" ;;
    *) "$builder" push --quiet "$1" "oci-archive:$work/image.tar" >/dev/null 2>&1 ;;
    esac
    echo "$("$builder" images --format '{{.Size}}' "$1"), $(($(wc -c < "$work/image.tar") / 1000000)) MB compressed"
    rm -f "$work/image.tar"
}

# How to bring the image to the nodes.
say_what_next() {
    local_name=${1##*/}
    archive=${local_name%:*}.tar
    case $builder in
    docker)
        save="docker save -o $archive $1"
        push="docker tag $1 REGISTRY/$local_name && docker push REGISTRY/$local_name"
        ;;
    *)
        save="$builder push $1 docker-archive:$archive:$local_name"
        push="$builder push $1 docker://REGISTRY/$local_name"
        ;;
    esac
    cat <<END
  to a registry:  $push
  as a file:      $save
    kind:         kind load image-archive $archive
    minikube:     minikube image load $archive
    k3s:          k3s ctr images import $archive
END
}

builder=$(find_builder)
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
created=$(date -u -d "@$epoch" +%Y-%m-%dT%H:%M:%SZ)
day=${DAY:-$(date -u +%F)}
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)

for name in "$@"; do
    case $name in
    etcd)
        deploy/image/etcd/stage.sh "$work/etcd/usr/local/bin"
        # If the folder exists already, runc gives its mode to what is mounted there.
        mkdir -m 1777 "$work/etcd/tmp"
        build "$registry/aerobee-etcd:test" -f deploy/image/etcd/Dockerfile "$work/etcd"
        ;;
    *)
        debian_image=${debian_image:-$(choose_debian)}
        write_secrets
        case $name in
        server) image=$registry/aerobee:$tag ;;
        *) image=$registry/aerobee-$name:$tag ;;
        esac
        build_aerobee "$image" "$name"
        say_what_next "$image"
        ;;
    esac
done
