#!/bin/sh
# The root file system under the image: Debian's Python and the libraries that it needs, each package
# named here, unpacked and not installed. No shell, no package manager, no Perl: what is not there
# is of no use to an intruder, and needs no updates.
#
#   base.sh server FOLDER    what every process of Aerobee needs
#   base.sh audit FOLDER     what Spark needs on top of that
#
# Runs as root on Debian; apt fetches the packages and checks their signatures.
set -eu

kind=$1
root=$2

python=python3.11
case $kind in
server)
    # libc-bin carries the locale C.UTF-8; gcc-12-base carries the licence of libstdc++.
    packages="base-files ca-certificates gcc-12-base libbz2-1.0 libc-bin libc6 libcrypt1 libexpat1
        libffi8 libgcc-s1 liblzma5 ${python}-minimal lib${python}-minimal lib${python}-stdlib libssl3
        libstdc++6 libuuid1 media-types tzdata zlib1g"
    ;;
audit)
    # Spark is started by bash scripts, which call a few of coreutils.
    packages="bash coreutils java-common libacl1 libattr1 libgmp10 libpcre2-8-0 libselinux1 libtinfo6
        openjdk-17-jre-headless"
    ;;
*)
    echo "base.sh makes server or audit, not $kind" >&2
    exit 2
    ;;
esac

downloads=$(mktemp -d)
trap 'rm -rf "$downloads"' EXIT
# If apt may not write as its own user, it warns and continues.
chmod 755 "$downloads"
(cd "$downloads" && apt-get download -qq -o APT::Sandbox::User=root $packages)

# For the bill of materials; beside the root, because the image does not need it.
(cd "$downloads" && sha256sum -- *.deb) > "$root.debs"

mkdir -p "$root"
if [ "$kind" = server ]; then
    # /bin, /lib and /sbin are links into /usr, as on every Debian since 12.
    for folder in bin lib lib64 sbin; do
        mkdir -p "$root/usr/$folder"
        ln -s "usr/$folder" "$root/$folder"
    done
fi
for package in "$downloads"/*.deb; do
    name=$(dpkg-deb --field "$package" Package)
    unpacked=$downloads/$name
    mkdir "$unpacked"
    dpkg-deb --extract "$package" "$unpacked"
    # Move folders of the old locations to the new ones.
    for folder in bin lib lib64 sbin; do
        if [ -d "$unpacked/$folder" ]; then
            mkdir -p "$unpacked/usr/$folder"
            cp -a "$unpacked/$folder/." "$unpacked/usr/$folder/"
            rm -r "${unpacked:?}/$folder"
        fi
    done
    cp -a "$unpacked/." "$root/"
    rm -r "$unpacked"
    # Image scanners read here which packages and versions are inside.
    mkdir -p "$root/var/lib/dpkg/status.d"
    dpkg-deb --field "$package" > "$root/var/lib/dpkg/status.d/$name"
done

cd "$root"
# Keep licences; remove manuals, translations and files for installation.
find usr/share/doc -type f ! -name copyright -delete
find usr/share/doc -type d -empty -delete
rm -rf usr/share/man usr/share/locale usr/share/info usr/share/lintian usr/share/bug usr/share/gdb \
    usr/share/bash-completion usr/share/applications usr/share/pixmaps usr/share/binfmts \
    usr/share/gcc usr/share/menu usr/share/base-files var/cache var/log/* etc/update-motd.d \
    etc/logrotate.d etc/apt etc/alternatives

if [ "$kind" = audit ]; then
    for other in bash coreutils; do rm -rf "etc/skel" "usr/lib/$other" "usr/share/$other"; done
    rm -f usr/bin/bashbug usr/bin/clear_console usr/bin/rbash etc/bash.bashrc
    ln -s bash usr/bin/sh
    # The same path on every processor.
    ln -s "$(cd usr/lib/jvm && echo java-17-openjdk-*)" usr/lib/jvm/java
    exit 0
fi

ln -s $python usr/bin/python3
# Only the data of libc-bin and of the certificates.
find usr/bin usr/sbin -type f ! -name $python -delete
rm -rf var/lock usr/lib/*/gconv usr/lib/*/audit usr/share/libc-bin etc/profile.d etc/profile etc/dot.*

# Parts of Python that are not used, and modules whose libraries are not in the list above
# (readline, curses, sqlite3, dbm, nis): importing one fails with the name of the missing library.
stdlib=usr/lib/$python
rm -rf "$stdlib/ensurepip" "$stdlib/lib2to3" "$stdlib/idlelib" "$stdlib/turtledemo" \
    "$stdlib/pydoc_data" "$stdlib/test" "$stdlib/sqlite3"
for module in "$stdlib"/lib-dynload/*.so; do
    for library in $(objdump -p "$module" | sed -n 's/^ *NEEDED *//p'); do
        if [ -z "$(find usr/lib usr/lib64 -name "$library" -print -quit)" ]; then
            rm "$module"
            break
        fi
    done
done
"$python" -m compileall -q -f --invalidation-mode unchecked-hash -s "$PWD" -p / "$PWD/$stdlib"

# One file, as update-ca-certificates makes it.
mkdir -p etc/ssl/certs
find usr/share/ca-certificates -name '*.crt' | sort | xargs cat > etc/ssl/certs/ca-certificates.crt
rm -rf usr/share/ca-certificates
# Where OpenSSL looks for them.
mkdir -p usr/lib/ssl
ln -s /etc/ssl/certs usr/lib/ssl/certs
ln -s /etc/ssl/certs/ca-certificates.crt usr/lib/ssl/cert.pem

cat > etc/passwd <<'END'
root:x:0:0:root:/root:/sbin/nologin
aerobee:x:10001:10001:Aerobee:/var/lib/aerobee:/sbin/nologin
END
cat > etc/group <<'END'
root:x:0:
aerobee:x:10001:
END
echo "hosts: files dns" > etc/nsswitch.conf
mkdir -p -m 1777 tmp var/tmp
install -d -o 10001 -g 10001 -m 0750 var/lib/aerobee
