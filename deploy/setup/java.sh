#!/bin/sh
# A Java runtime for Spark (17 or newer), which the offset audit and its tests need and nothing else
# does. What is there is left alone; on Debian and as root it is installed; otherwise this says how.
set -eu

wanted=17

major_of() {
    # openjdk version "17.0.15" -> 17, java version "1.8.0_392" -> 8
    "$1" -version 2>&1 | sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9][0-9]*\).*/\2/p' | head -n 1
}

say() {
    {
        echo "$found; the offset audit runs on Spark and needs Java $wanted or newer:"
        echo "  Debian, Ubuntu: apt-get install openjdk-17-jre-headless"
        echo "  Fedora:         dnf install java-17-openjdk-headless"
        echo "  macOS:          brew install temurin@17"
        echo "everything else of Aerobee works without it"
    } >&2
}

# Spark takes JAVA_HOME before the PATH.
java=${JAVA_HOME:+$JAVA_HOME/bin/}java
if command -v "$java" >/dev/null 2>&1; then
    major=$(major_of "$java")
    if [ "${major:-0}" -ge "$wanted" ]; then
        exit 0
    fi
    found="$java is Java ${major:-of no known version}"
elif [ -n "${JAVA_HOME:-}" ]; then
    found="JAVA_HOME is $JAVA_HOME, which has no bin/java (unset it to use the system's)"
else
    found="no java is installed"
fi

# What is installed would not be used where JAVA_HOME says otherwise.
if [ -n "${JAVA_HOME:-}" ] || [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    say
    exit 1
fi

get() {
    apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=300 "$1" >/dev/null
}

export DEBIAN_FRONTEND=noninteractive
# Images without manuals lack this folder, in which the package puts links.
mkdir -p /usr/share/man/man1
# Without a network, what was fetched before may do.
apt-get update -qq -o DPkg::Lock::Timeout=300 >/dev/null 2>&1 || true
# Newer releases carry newer ones only.
if ! get openjdk-17-jre-headless 2>/dev/null && ! get default-jre-headless; then
    say
    exit 1
fi

major=$(major_of java || true)
if [ "${major:-0}" -lt "$wanted" ]; then
    found="java is still Java ${major:-of no known version} (see update-alternatives --config java)"
    say
    exit 1
fi
