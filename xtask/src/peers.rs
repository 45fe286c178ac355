//! Programs that tests run against, from the package registries through their ordinary clients.
//!
//! They are stored in `target/peers` or in Debian's own folders. Each is installed once.

use crate::programs;
use crate::run::{Outcome, cargo, output, root, run};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folder in which peers are kept between runs.
pub(crate) fn folder() -> PathBuf {
    root().join("target/peers")
}

/// Waits until no other stage installs anything. Some stages run in parallel, in separate processes.
fn alone() -> Result<File, String> {
    let path = folder().join("lock");
    let wrong = |error: std::io::Error| format!("{}: {error}", path.display());
    std::fs::create_dir_all(folder()).map_err(wrong)?;
    let lock = File::options().create(true).append(true).open(&path).map_err(wrong)?;
    lock.lock().map_err(wrong)?;
    Ok(lock)
}

/// Whether a Debian package is installed.
pub(crate) fn is_installed(package: &str) -> bool {
    output(Command::new("dpkg-query").args(["--show", "--showformat=${db:Status-Status}", package]))
        .is_ok_and(|status| status == "installed")
}

/// Installs the Debian packages that are missing.
pub(crate) fn debian(packages: &[&str]) -> Outcome {
    let installed = |package: &&str| is_installed(package);
    if packages.iter().all(installed) {
        return Ok(());
    }
    let _alone = alone()?;
    let missing: Vec<_> = packages.iter().filter(|package| !installed(package)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    run(apt().arg("update"))?;
    run(apt().args(["install", "--yes", "--no-install-recommends"]).args(missing))
}

/// Unpacks a Debian package without installing it, so that no service starts. Its libraries must be installed already.
pub(crate) fn unpacked(package: &str) -> Result<PathBuf, String> {
    unpacked_to(&folder().join(package), package, &[])
}

/// Unpacks the package for 64-bit Arm.
pub(crate) fn unpacked_arm64(package: &str) -> Result<PathBuf, String> {
    unpacked_to(&folder().join("arm64").join(package), package, &arm64()?)
}

fn unpacked_to(place: &Path, package: &str, options: &[String]) -> Result<PathBuf, String> {
    let files = place.join("unpacked");
    if !files.exists() {
        download(package, place, options)?;
        let unpack = "cd \"$0\" && dpkg -x ./*.deb next && mv next unpacked";
        output(Command::new("sh").args(["-c", unpack]).arg(place))?;
    }
    Ok(files)
}

/// Downloads a Debian package into a folder, as its only package. These are options of `apt-get`.
pub(crate) fn download(package: &str, place: &Path, options: &[String]) -> Outcome {
    std::fs::create_dir_all(place).map_err(|error| format!("{}: {error}", place.display()))?;
    let fetch = "cd \"$0\" && rm -f ./*.deb && apt-get -qq download \"$@\"";
    let fetch = || output(Command::new("sh").args(["-c", fetch]).arg(place).arg(package).args(options));
    if fetch().is_err() {
        run(apt().args(options).arg("update"))?;
        fetch()?;
    }
    Ok(())
}

/// Options of `apt-get` and `apt-cache` for packages for 64-bit Arm. Their lists are separate: the host's do not change.
pub(crate) fn arm64() -> Result<Vec<String>, String> {
    let place = folder().join("arm64/apt");
    let wrong = |error: std::io::Error| format!("{}: {error}", place.display());
    for below in ["lists/partial", "archives/partial"] {
        std::fs::create_dir_all(place.join(below)).map_err(wrong)?;
    }
    // No package is installed for this processor.
    File::options().create(true).append(true).open(place.join("status")).map_err(wrong)?;
    let at = place.display();
    let options = [
        "APT::Architecture=arm64".to_owned(),
        "APT::Architectures=arm64".to_owned(),
        format!("Dir::State={at}"),
        format!("Dir::State::status={at}/status"),
        format!("Dir::Cache={at}"),
    ];
    Ok(options.into_iter().flat_map(|option| ["-o".to_owned(), option]).collect())
}

/// Builds the small Linux guest of the example; returns its folder.
pub(crate) fn small_linux() -> Result<PathBuf, String> {
    let linux = folder().join("guest");
    run(Command::new(root().join("examples/packaging/guest/make")).arg(&linux))?;
    Ok(linux)
}

/// `apt-get` without questions and with little output.
pub(crate) fn apt() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive").arg("-qq");
    command
}

/// Makes an empty Python environment. An environment keeps the path of the Python that made it, so this uses the program
/// itself, not the link in a stage's folder.
pub(crate) fn environment(venv: &Path) -> Outcome {
    let python = programs::find("python3").and_then(|link| link.canonicalize().ok());
    run(Command::new(python.unwrap_or_else(|| "python3".into())).args(["-m", "venv"]).arg(venv))
}

/// Makes a Python environment with these packages; returns its `bin` folder.
pub(crate) fn python(name: &str, packages: &[&str]) -> Result<PathBuf, String> {
    let venv = folder().join(name);
    let marker = venv.join("tahti-installed");
    let wanted = packages.join("\n");
    if std::fs::read_to_string(&marker).is_ok_and(|installed| installed == wanted) {
        return Ok(venv.join("bin"));
    }
    environment(&venv)?;
    run(Command::new(venv.join("bin/pip")).args(["install", "--quiet", "--disable-pip-version-check"]).args(packages))?;
    std::fs::write(&marker, wanted).map_err(|error| format!("{}: {error}", marker.display()))?;
    Ok(venv.join("bin"))
}

/// Installs packages of the Node registry in a separate folder; returns the folder that holds `node_modules`.
pub(crate) fn node(name: &str, packages: &[&str]) -> Result<PathBuf, String> {
    let folder = folder().join(name);
    let marker = folder.join("tahti-installed");
    let wanted = packages.join("\n");
    if std::fs::read_to_string(&marker).is_ok_and(|installed| installed == wanted) {
        return Ok(folder);
    }
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"]).arg(&folder);
    run(npm.args(packages))?;
    std::fs::write(&marker, wanted).map_err(|error| format!("{}: {error}", marker.display()))?;
    Ok(folder)
}

/// Unpacks the source packages of Python packages, as many hold tests that their wheels lack. Returns the common folder.
pub(crate) fn python_sources(bin: &Path, packages: &[&str]) -> Result<PathBuf, String> {
    let folder = folder().join("sources");
    for package in packages {
        let place = folder.join(package);
        if place.exists() {
            continue;
        }
        let next = folder.join("next");
        // Remove the files of an interrupted run.
        let _ = std::fs::remove_dir_all(&next);
        let mut download = Command::new(bin.join("pip"));
        download.args(["download", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-binary", ":all:"]);
        run(download.arg("--dest").arg(&next).arg(package))?;
        let unpack = "cd \"$0\" && tar -xzf ./*.tar.gz --strip-components=1 && rm ./*.tar.gz && mv \"$0\" \"$1\"";
        run(Command::new("sh").args(["-c", unpack]).arg(&next).arg(&place))?;
    }
    Ok(folder)
}

/// Downloads a Java library; returns its file.
pub(crate) fn java(group: &str, name: &str, version: &str) -> Result<PathBuf, String> {
    let folder = folder().join("java");
    let library = folder.join(format!("{name}-{version}.jar"));
    if !library.exists() {
        let mut maven = Command::new("mvn");
        maven.args(["--quiet", "--batch-mode", "org.apache.maven.plugins:maven-dependency-plugin:copy"]);
        maven.arg(format!("-Dartifact={group}:{name}:{version}"));
        run(maven.arg(format!("-DoutputDirectory={}", folder.display())))?;
    }
    Ok(library)
}

/// Downloads a Java library with its runtime dependencies; returns the folder of their files.
pub(crate) fn java_program(group: &str, name: &str, version: &str) -> Result<PathBuf, String> {
    let folder = folder().join("java").join(format!("{name}-{version}"));
    if folder.exists() {
        return Ok(folder);
    }
    let _alone = alone()?;
    if folder.exists() {
        return Ok(folder);
    }
    let next = folder.with_extension("next");
    // Remove the files of an interrupted run.
    let _ = std::fs::remove_dir_all(&next);
    let wrong = |error: std::io::Error| format!("{}: {error}", next.display());
    std::fs::create_dir_all(&next).map_err(wrong)?;
    let project = format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion>\
         <groupId>tahti</groupId><artifactId>peers</artifactId><version>1</version><packaging>pom</packaging>\
         <dependencies><dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>\
         <version>{version}</version></dependency></dependencies></project>"
    );
    std::fs::write(next.join("pom.xml"), project).map_err(wrong)?;
    let mut maven = Command::new("mvn");
    maven.args(["--quiet", "--batch-mode", "--file"]).arg(next.join("pom.xml"));
    maven.arg("org.apache.maven.plugins:maven-dependency-plugin:copy-dependencies").arg("-DincludeScope=runtime");
    run(maven.arg(format!("-DoutputDirectory={}", next.display())))?;
    std::fs::rename(&next, &folder).map_err(wrong)?;
    Ok(folder)
}

/// Path of Java 17. Some programs need this version and fail with newer ones.
pub(crate) fn java_17() -> Result<PathBuf, String> {
    let files = output(Command::new("dpkg-query").args(["--listfiles", "openjdk-17-jre-headless"]))?;
    let java = files.lines().find(|file| file.ends_with("/bin/java")).map(PathBuf::from);
    java.ok_or_else(|| "openjdk-17-jre-headless has no bin/java".into())
}

/// Installs a cargo subcommand from the crate registry; returns the folder that holds its program.
pub(crate) fn cargo_tool(name: &str) -> Result<PathBuf, String> {
    let bin = folder().join("bin");
    if !bin.join(name).exists() {
        run(cargo(["install", "--quiet", "--locked", "--root"]).arg(folder()).arg(name))?;
    }
    Ok(bin)
}

/// Whether rustup has a nightly toolchain. Only fuzzing and miri need it.
pub(crate) fn nightly() -> bool {
    output(Command::new("rustup").args(["toolchain", "list"]))
        .is_ok_and(|list| list.lines().any(|line| line.starts_with("nightly")))
}
