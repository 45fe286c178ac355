//! `cargo xtask tidy`: the house rules of ARCHITECTURE.md, checked.

use crate::run::{Outcome, metadata, output, root};
use std::fs;
use std::path::{Path, PathBuf};

/// Who may depend on whom (besides `base`, on which everybody may). A crate that is not here does not exist.
const ARROWS: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("broker", &["msg", "ring", "rt", "sys"]),
    ("ca", &[]),
    ("db", &[]),
    ("capi", &["broker", "msg", "rt", "sys"]),
    ("em", &["broker", "ca", "equipment", "fieldbus", "iocd", "msg", "port", "ring", "rt", "sys", "table"]),
    ("equipment", &["fieldbus", "msg", "table"]),
    ("fabric", &["broker", "msg", "sys"]),
    ("fieldbus", &[]),
    ("frame", &[]),
    ("host", &["frame", "table"]),
    ("msg", &[]),
    ("sys", &["host"]),
    ("table", &[]),
    ("keep", &["host", "sys", "ring"]),
    (
        "cli",
        &["broker", "em", "equipment", "fabric", "frame", "host", "sys", "keep", "ring", "rt", "iocd", "ca", "msg"],
    ),
    ("iocd", &["broker", "ca", "db", "fieldbus", "msg", "port", "ring", "rt", "sys"]),
    ("port", &["fieldbus", "sys"]),
    ("testkit", &["host", "sys"]),
    ("ring", &[]),
    ("rt", &["frame", "ring", "sys"]),
    ("xtask", &[]),
];

/// Crates that decide: no file, socket, clock, thread or process in them.
const PURE: &[&str] = &["base", "ca", "db", "equipment", "fieldbus", "frame", "host", "msg", "ring", "table"];

/// What pure crates must not name.
const IMPURE: &[&str] =
    &["std::fs", "std::net", "std::thread", "std::process", "std::env", "Instant::now", "SystemTime", "std::os"];

/// Where `unsafe` may stand.
const UNSAFE: &[&str] = &["sys", "capi"];

/// Runs every check and reports all findings at once.
pub(crate) fn main() -> Outcome {
    let mut findings = Vec::new();
    dependencies(&mut findings)?;
    for file in rust_files()? {
        let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        source(&file, &text, &mut findings);
    }
    if findings.is_empty() {
        println!("tidy");
        return Ok(());
    }
    Err(format!("{} findings\n{}", findings.len(), findings.join("\n")))
}

/// Arrows between our crates, and a reason for each foreign one.
fn dependencies(findings: &mut Vec<String>) -> Outcome {
    let reasons = fs::read_to_string(root().join("docs/dependencies.md")).unwrap_or_default();
    let packages = metadata()?;
    let ours: Vec<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    for package in &packages {
        let name = package["name"].as_str().unwrap_or_default();
        let Some((_, allowed)) = ARROWS.iter().find(|(from, _)| *from == name) else {
            findings.push(format!("{name}: not in the drawing; add it to ARROWS and to ARCHITECTURE.md"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let (to, kind) = (dependency["name"].as_str().unwrap_or_default(), dependency["kind"].as_str());
            if !ours.contains(&to) {
                if !reasons.contains(&format!("`{to}`")) {
                    findings.push(format!("{name} -> {to}: no line of why in docs/dependencies.md"));
                }
            } else if to != "base" && !allowed.contains(&to) && kind != Some("dev") {
                findings.push(format!("{name} -> {to}: an arrow that is not in the drawing"));
            }
        }
    }
    Ok(())
}

/// Rules on one source file.
fn source(file: &Path, text: &str, findings: &mut Vec<String>) {
    let relative = file.strip_prefix(root()).unwrap_or(file);
    let mut parts = relative.iter().map(|part| part.to_string_lossy());
    let (Some(top), Some(name)) = (parts.next(), parts.next()) else { return };
    let name = if top == "crates" { name.into_owned() } else { top.into_owned() };
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    for (index, line) in code.lines().enumerate() {
        let line = line.split("//").next().unwrap_or_default();
        let mut found = |what: &str| findings.push(format!("{}:{}: {what}", relative.display(), index + 1));
        if PURE.contains(&&*name) && relative.iter().any(|part| part == "src") {
            for word in IMPURE.iter().filter(|word| line.contains(**word)) {
                found(&format!("{word} in a pure crate; pass it in as an argument"));
            }
        }
        let unsafe_word = concat!("un", "safe");
        let uses = line.contains(&format!("{unsafe_word} {{")) || line.contains(&format!("{unsafe_word} impl"));
        if uses && !UNSAFE.contains(&&*name) {
            found("unsafe outside the crates that may");
        }
    }
}

/// All Rust files of the workspace.
fn rust_files() -> Result<Vec<PathBuf>, String> {
    let listed = output(std::process::Command::new("git").args([
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "*.rs",
    ]))?;
    Ok(listed.lines().map(|line| root().join(line)).filter(|path| path.exists()).collect())
}
