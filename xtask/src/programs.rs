//! The programs that each stage of the test command may start.
//!
//! A stage runs with a folder of links as its whole `PATH`. The folder holds Rust's tools, the programs of Debian's essential
//! packages, and the programs that the stage declares. A program that a test starts without a declaration is therefore
//! missing on every machine, also on one where another stage or a person has installed it.

use crate::peers;
use crate::run::{output, root};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A Debian package that a stage needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Package {
    pub(crate) name: &'static str,
    /// The programs of the package that the stage starts. If empty, the stage needs only the package's files.
    pub(crate) programs: &'static [&'static str],
}

/// One entry of a stage's declaration.
pub(crate) const fn package(name: &'static str, programs: &'static [&'static str]) -> Package {
    Package { name, programs }
}

/// Rust's tools. They come from the user's `PATH`, as the system may have other versions.
const RUST: &[&str] =
    &["cargo", "cargo-clippy", "cargo-fmt", "cargo-miri", "clippy-driver", "rustc", "rustdoc", "rustfmt", "rustup"];

/// Packages of every stage, in addition to Rust's tools and Debian's essential packages: for linking, and to list files.
const BASE: &[Package] = &[
    package("gcc", &["cc", "gcc"]),
    package("binutils", &["ar", "as", "ld", "strip"]),
    package("mawk", &["awk"]),
    package("git", &["git"]),
];

/// Folders with programs of packages. They are searched first because every user of the machine can start their programs.
const SYSTEM: [&str; 6] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/sbin", "/usr/local/bin"];

/// Installs the packages of a stage whose programs or files are missing.
///
/// # Errors
/// Names a package that could not be installed, or a program that its package did not bring.
pub(crate) fn install(stage: &str, needs: &[Package]) -> Result<(), String> {
    let all = || BASE.iter().chain(needs);
    let lacks = |package: &&Package| match package.programs {
        // Without dpkg-query, a missing package cannot be detected.
        [] => essential().is_ok() && !peers::is_installed(package.name),
        programs => programs.iter().any(|program| find(program).is_none()),
    };
    let missing: Vec<&str> = all().filter(lacks).map(|package| package.name).collect();
    peers::debian(&missing)?;
    let without = all().flat_map(|package| package.programs.iter().map(|program| (package.name, *program)));
    match without.into_iter().find(|(_, program)| find(program).is_none()) {
        None => Ok(()),
        Some((package, program)) => Err(format!(
            "stage {stage} needs the program {program}: not in PATH, and Debian's package {package} did not bring it"
        )),
    }
}

/// Makes the folder with links to the programs of a stage and returns the value of its `PATH`. On a system without Debian's
/// packages, returns the user's own `PATH`.
///
/// # Errors
/// Names the link that could not be made.
pub(crate) fn path(stage: &str, needs: &[Package]) -> Result<PathBuf, String> {
    let Ok(essential) = essential() else {
        println!("no dpkg-query here: stage {stage} sees all programs, not only those that it declares");
        return Ok(std::env::var_os("PATH").unwrap_or_default().into());
    };
    let declared = BASE.iter().chain(needs).flat_map(|package| package.programs).filter_map(|program| find(program));
    let folder = root().join("target/path").join(stage);
    // Remove the links of the previous run. The folder may not exist.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let rust = RUST.iter().filter_map(|program| in_user_path(program));
    for program in rust.chain(essential).chain(declared) {
        let link = folder.join(program.file_name().unwrap_or_default());
        match symlink(&program, &link) {
            Err(error) if !link.is_symlink() => return Err(format!("{}: {error}", link.display())),
            // The link already exists: a declared program is also one of the others.
            _ => {}
        }
    }
    Ok(folder)
}

/// The programs of Debian's essential packages.
fn essential() -> Result<Vec<PathBuf>, String> {
    let query = |words: &[&str]| output(Command::new("dpkg-query").args(words));
    let packages = query(&["--show", "--showformat=${Essential} ${binary:Package}\n"])?;
    let packages = packages.lines().filter_map(|line| line.strip_prefix("yes "));
    let files = query(&[&["--listfiles"][..], &packages.collect::<Vec<_>>()].concat())?;
    let in_system = |file: &&Path| SYSTEM.iter().any(|folder| file.parent() == Some(Path::new(folder)));
    let programs = files.lines().map(Path::new).filter(in_system);
    // An administrator may have removed some of the files that a package lists.
    Ok(programs.filter(|file| is_program(file)).map(Path::to_owned).collect())
}

/// Path of a program, from the system's folders first, then from the user's `PATH`.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let mut system = SYSTEM.iter().map(|folder| Path::new(folder).join(program));
    system.find(|file| is_program(file)).or_else(|| in_user_path(program))
}

fn in_user_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    file.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_sees_only_essential_and_declared_programs() {
        let needs = [package("perl", &["perl"]), package("nobody", &["no-such-program"])];
        let folder = path("of-a-test", &needs).unwrap();
        let runs = |script: &str| {
            let ended = Command::new("sh").args(["-c", script]).env("PATH", &folder).output().unwrap();
            ended.status.success()
        };
        assert!(runs("ls / && perl -e 1 && cc --version && cargo --version && rustc --version"));
        let names: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        // Neither an undeclared program of this system nor a program that does not exist.
        assert!(!names.iter().any(|name| name == "apt-get" || name == "no-such-program"), "{names:?}");
        assert!(!runs("apt-get --version"));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_program_without_a_package_is_named_with_its_stage() {
        let needs = [package("coreutils", &["no-such-program"])];
        let found = install("of-a-test", &needs).unwrap_err();
        let expected = "stage of-a-test needs the program no-such-program: not in PATH, and Debian's package coreutils did \
                        not bring it";
        assert_eq!(found, expected);
    }
}
