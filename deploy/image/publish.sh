#!/bin/sh
# Builds the images of deploy/Dockerfile for amd64 and arm64 and pushes them to a registry, with a bill of
# materials and provenance, and prints the digests by which to pin them.
#
#   deploy/image/publish.sh REGISTRY [server] [audit]     without a name: both
#
# Needs docker with buildx, a builder of the driver docker-container, and for the other processor either
# a node of that kind or QEMU (docker run --privileged --rm tonistiigi/binfmt --install arm64). The
# checkout must be clean, so that what is published matches its commit.
# Environment: TAG (default: the version), PLATFORMS, DEBIAN and DAY as in build.sh.
set -eu
cd "$(dirname "$0")/../.."

if [ $# -eq 0 ]; then
    echo "name a registry: deploy/image/publish.sh registry.example.net/team" >&2
    exit 2
fi
registry=${1%/}
shift
[ $# -gt 0 ] || set -- server audit
if ! docker buildx version >/dev/null 2>&1; then
    echo "docker has no buildx: install it (Debian: docker-buildx-plugin of docker.com's packages)" >&2
    exit 1
fi
if [ -n "$(git status --porcelain)" ]; then
    echo "the checkout has changes that no commit has: commit them, or stash them" >&2
    exit 1
fi

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml | head -n 1)
tag=${TAG:-$version}
epoch=$(git log -1 --format=%ct)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for target in "$@"; do
    case $target in
    server) name=aerobee ;;
    audit) name=aerobee-audit ;;
    *)
        echo "publish.sh publishes server or audit, not $target" >&2
        exit 2
        ;;
    esac
    image=$registry/$name
    set -- --platform "${PLATFORMS:-linux/amd64,linux/arm64}" -f deploy/Dockerfile --target "$target" \
        --build-arg "VERSION=$version" \
        --build-arg "REVISION=$(git rev-parse HEAD)" \
        --build-arg "CREATED=$(date -u -d "@$epoch" +%Y-%m-%dT%H:%M:%SZ)" \
        --build-arg "DAY=${DAY:-$(date -u +%F)}" \
        --build-arg "SOURCE_DATE_EPOCH=$epoch" \
        --provenance mode=max --sbom true \
        --metadata-file "$work/metadata.json" \
        --output "type=image,name=$image:$tag,push=true,rewrite-timestamp=true"
    [ -z "${DEBIAN:-}" ] || set -- "$@" --build-arg "DEBIAN=$DEBIAN"
    docker buildx build "$@" .
    digest=$(sed -n 's/.*"containerimage.digest": *"\(sha256:[0-9a-f]*\)".*/\1/p' "$work/metadata.json")
    cat <<END
$image:$tag
  pinned:     $image@$digest
  sign:       cosign sign $image@$digest
  kustomize:  images: [{name: $name, newName: $image, digest: "$digest"}]
END
    [ "$target" != server ] ||
        echo "  helm:       --set image.repository=$image --set image.digest=$digest"
done
