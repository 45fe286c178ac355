#!/bin/sh
# Builds libtahti and installs it with its header, pkg-config file and CMake package:
#   bindings/c/install.sh /usr/local            (PROFILE=dev for a debug build)
set -eu
prefix=${1:?usage: install.sh PREFIX}
root=$(cd "$(dirname "$0")/../.." && pwd)
profile=${PROFILE:-release}
(cd "$root" && cargo build -q -p capi --profile "$profile")
built=$root/target/$([ "$profile" = dev ] && echo debug || echo "$profile")
version=$(sed -n '/workspace.package/,/^$/s/^version = "\(.*\)"/\1/p' "$root/Cargo.toml")
mkdir -p "$prefix/lib/pkgconfig" "$prefix/lib/cmake/Tahti" "$prefix/include"
prefix=$(cd "$prefix" && pwd)
install -m 755 "$built/libtahti.so" "$prefix/lib/"
install -m 644 "$root/crates/face/capi/include/tahti.h" "$prefix/include/"
cat >"$prefix/lib/pkgconfig/tahti.pc" <<PC
prefix=$prefix

Name: tahti
Description: Frames, variables and team work of the tahti real-time controller
Version: $version
Cflags: -I\${prefix}/include
Libs: -L\${prefix}/lib -Wl,-rpath,\${prefix}/lib -ltahti
PC
cat >"$prefix/lib/cmake/Tahti/TahtiConfig.cmake" <<'CMAKE'
get_filename_component(_tahti_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET Tahti::tahti)
  add_library(Tahti::tahti SHARED IMPORTED)
  set_target_properties(Tahti::tahti PROPERTIES
    IMPORTED_LOCATION "${_tahti_prefix}/lib/libtahti.so"
    IMPORTED_NO_SONAME TRUE
    INTERFACE_INCLUDE_DIRECTORIES "${_tahti_prefix}/include")
endif()
CMAKE
echo "libtahti $version is in $prefix"
