#!/bin/sh
# What goes under /usr/local of the image, in stages of deploy/Dockerfile.
#
#   install.sh dependencies REQUIREMENTS FOLDER    wheels by their hashes; pip's report of them is
#                                                  FOLDER.wheels
#   install.sh project FOLDER                      Aerobee, and its command
set -eu

here=$(dirname "$0")
python=python3.11

compile() {
    # Hash-based and unchecked: no file time gets in, and none is checked at a start.
    "$python" -m compileall -q -f --invalidation-mode unchecked-hash -s "$folder" -p / \
        "$packages" >/dev/null
}

case $1 in
dependencies)
    folder=$3
    packages=$folder/usr/local/lib/$python/dist-packages
    # etcd3 and pyspark have no wheels; the rest must have one for this machine.
    "$here/pip.sh" install --require-hashes --no-deps --no-compile --no-build-isolation \
        --only-binary :all: --no-binary etcd3,pyspark --target "$packages" -r "$2" \
        --report "$folder.wheels"
    # Libraries' commands and tests, and files that only type checkers and compilers read.
    rm -rf "$packages/bin" "$packages/include" "$packages"/pyspark/examples \
        "$packages"/pyspark/data "$packages"/pyarrow/include "$packages"/pyarrow/src
    find "$packages" -depth -type d -name tests ! -path '*/pyspark/*' -exec rm -rf {} +
    find "$packages" \( -name '*.pyi' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.h' \
        -o -name '*.a' -o -name '*.lib' \) -type f -delete
    # Some wheels carry their debugger's tables: 35 of 46 MB.
    find "$packages" -name '*.so' -type f | while read -r library; do
        if objdump -h "$library" | grep -q '[.]debug_info'; then
            strip --strip-debug "$library"
        fi
    done
    compile
    ;;
project)
    folder=$2
    packages=$folder/usr/local/lib/$python/dist-packages
    "$here/pip.sh" install --no-deps --no-compile --no-build-isolation --no-index \
        --target "$packages" .
    rm -rf "$packages/bin"
    compile
    mkdir -p "$folder/usr/local/bin"
    # -P, -s: ignore the current folder and the user's own packages.
    cat > "$folder/usr/local/bin/aerobee" <<END
#!/usr/bin/$python -Ps
from aerobee.cli.__main__ import main

main(prog_name="aerobee")
END
    chmod 755 "$folder/usr/local/bin/aerobee"
    ;;
esac
