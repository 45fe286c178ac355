#!/bin/sh
# Builds the C and C++ activities in this folder. Uses pkg-config to find libtahti. If it is missing, installs it into
# ./prefix first.
set -eu
cd "$(dirname "$0")"
if ! pkg-config --exists tahti; then
    ../../bindings/c/install.sh prefix
    export PKG_CONFIG_PATH="$PWD/prefix/lib/pkgconfig"
fi
${CC:-cc} -O2 -Wall -Wextra -o control control.c $(pkg-config --cflags --libs tahti)
${CXX:-c++} -O2 -Wall -Wextra -std=c++17 -o filter filter.cpp $(pkg-config --cflags --libs tahti)
