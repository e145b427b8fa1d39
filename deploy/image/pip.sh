#!/bin/sh
# pip in a stage of deploy/Dockerfile, with the build's secrets for the network: `ca` (certificates of a
# proxy) and `pip` (a pip.conf). Both exist only while a command runs, and are in no layer.
set -eu

if [ -s /run/secrets/ca ]; then
    export PIP_CERT=/run/secrets/ca SSL_CERT_FILE=/run/secrets/ca
fi
if [ -s /run/secrets/pip ]; then
    export PIP_CONFIG_FILE=/run/secrets/pip
fi
export PIP_ROOT_USER_ACTION=ignore PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
exec python3 -m pip --quiet "$@"
