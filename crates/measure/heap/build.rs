//! Builds the library that is loaded into other programs. It uses no standard library, and works with glibc and musl.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=preload");
    println!("cargo::rerun-if-changed=src/layout.rs");
    let out = Path::new(&env::var_os("OUT_DIR").unwrap_or_default()).join("libtahti_heap.so");
    let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let mut rustc = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    // The library links nothing of a C library, so one build serves both. A static target (musl) cannot build shared libraries.
    rustc.arg("--target").arg(format!("{arch}-unknown-linux-gnu"));
    rustc.args(["--edition", "2024", "--crate-type", "cdylib", "--crate-name", "tahti_heap", "-O"]);
    rustc.args(["-C", "panic=abort", "-C", "lto=fat", "-C", "codegen-units=1", "-C", "strip=symbols"]);
    let options = ["-nostdlib", "-z", "undefs", "-soname", "libtahti_heap.so"];
    if env::var("HOST").unwrap_or_default().starts_with(&arch) {
        let options = [options[0].to_owned(), format!("-Wl,{}", options[1..].join(","))];
        rustc.args(options.map(|option| format!("-Clink-arg={option}")));
        let is_static = env::var("TARGET").unwrap_or_default().contains("musl");
        if let Some(linker) = env::var_os("RUSTC_LINKER").filter(|_| !is_static) {
            let mut word = std::ffi::OsString::from("linker=");
            word.push(linker);
            rustc.arg("-C").arg(word);
        }
    } else {
        // The host's linker knows only the host's processor; Rust's own knows all.
        rustc.args(["-C", "linker=rust-lld", "-C", "linker-flavor=ld.lld"]);
        rustc.args(options.map(|option| format!("-Clink-arg={option}")));
    }
    rustc.arg("-o").arg(&out).arg("preload/heap.rs");
    match rustc.output() {
        Ok(built) if built.status.success() => {}
        Ok(built) => panic!("{}", String::from_utf8_lossy(&built.stderr)),
        Err(error) => panic!("rustc: {error}"),
    }
}
