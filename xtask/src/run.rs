//! Runs other programs from the workspace's root.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The outcome of a step; the error is the text for the user.
pub(crate) type Outcome = Result<(), String>;

/// Runs all steps and joins their errors.
pub(crate) fn all(steps: impl IntoIterator<Item = Outcome>) -> Outcome {
    let wrong: Vec<String> = steps.into_iter().filter_map(Result::err).collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

/// The workspace's root directory.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the workspace").to_owned()
}

/// The command line as a person would type it, for messages.
pub(crate) fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// Runs a command to its end with its output passed through. Fails if it cannot be started or its status is not 0.
pub(crate) fn run(command: &mut Command) -> Outcome {
    let shown = shown(command);
    println!("$ {shown}");
    match command.current_dir(root()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{shown}` ended with {status}")),
        Err(error) => Err(format!("`{shown}` could not be started: {error}")),
    }
}

/// `cargo` with these arguments, without the variables that cargo sets for this program. Otherwise build scripts that read
/// them (that of the crate `ring`) would run again after each cargo command of a shell, and their dependents be rebuilt.
pub(crate) fn cargo<'a>(words: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let of_this_program = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    let names = std::env::vars_os().map(|(name, _)| name);
    for name in names.filter(|name| name.to_str().is_some_and(of_this_program)) {
        command.env_remove(name);
    }
    command.args(words);
    command
}

/// The target of tests and binaries for 64-bit Arm. Its C library is linked statically.
pub(crate) const ARM: &str = "aarch64-unknown-linux-musl";

/// The target of the library that `heap` loads into programs for 64-bit Arm, whatever their C library.
pub(crate) const ARM_PRELOAD: &str = "aarch64-unknown-linux-gnu";

/// Runs programs for [`ARM`].
pub(crate) const ARM_EMULATOR: &str = "qemu-aarch64";

/// Makes a cargo command build for [`ARM`] with Rust's own linker, and run what it built in the emulator.
pub(crate) fn for_arm(command: &mut Command) -> &mut Command {
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER", "rust-lld");
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_RUNNER", ARM_EMULATOR).args(["--target", ARM])
}

/// Installs a target's standard library.
pub(crate) fn add_target(target: &str) -> Outcome {
    run(Command::new("rustup").args(["target", "add", target]).env_remove("RUSTUP_TOOLCHAIN"))
}

/// Runs a command without printing it and returns its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let shown = shown(command);
    let output =
        command.current_dir(root()).output().map_err(|error| format!("`{shown}` could not be started: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("`{shown}` ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr)))
    }
}

/// The workspace's packages, from `cargo metadata`.
pub(crate) fn metadata() -> Result<Vec<Value>, String> {
    let text = output(&mut cargo(["metadata", "--no-deps", "--format-version", "1"]))?;
    let mut metadata: Value = serde_json::from_str(&text).map_err(|error| format!("cargo metadata: {error}"))?;
    match metadata["packages"].take() {
        Value::Array(packages) => Ok(packages),
        _ => Err("cargo metadata: no packages".into()),
    }
}
