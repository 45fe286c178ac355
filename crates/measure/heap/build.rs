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
    rustc.args([
        "-C",
        "link-arg=-nostdlib",
        "-C",
        "link-arg=-Wl,-z,undefs",
        "-C",
        "link-arg=-Wl,-soname,libtahti_heap.so",
    ]);
    if let Some(linker) =
        env::var_os("RUSTC_LINKER").filter(|_| !env::var("TARGET").unwrap_or_default().contains("musl"))
    {
        let mut word = std::ffi::OsString::from("linker=");
        word.push(linker);
        rustc.arg("-C").arg(word);
    }
    rustc.arg("-o").arg(&out).arg("preload/heap.rs");
    match rustc.output() {
        Ok(built) if built.status.success() => {}
        Ok(built) => panic!("{}", String::from_utf8_lossy(&built.stderr)),
        Err(error) => panic!("rustc: {error}"),
    }
}
