#!/bin/sh
# The versions of uv.lock against the known vulnerabilities of osv.dev:
#
#   vulnerabilities.sh [UV]
#
# Exits with 0 if none is known, with 1 if some are, and with 2 if it could not be found out, which is
# no good news. OSV_URL names another service of that kind. Knows Python packages alone: give the
# bill of materials of the image (dist/*.cdx.json) to a scanner of images for those of Debian.
set -u
cd "$(dirname "$0")/../.."
uv=${1:-uv}

checked() {
    echo "--- $1"
    shift
    "$uv" audit --frozen --preview-features audit-command ${OSV_URL:+--service-url "$OSV_URL"} "$@"
    code=$?
    case $code in
    0) ;;
    1) worst=$((worst > 1 ? worst : 1)) ;;
    *)
        worst=2
        echo "could not check: $uv ended with $code; nothing is known of these packages" >&2
        ;;
    esac
}

worst=0
checked "what a cluster and its clients run" --no-dev --no-extra audit --no-extra demo --no-extra otel
checked "all, with the audit and what developers use"
exit $worst
