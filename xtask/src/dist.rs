//! `cargo xtask dist`: builds a Debian package, a static binary, a Python wheel and the documentation as HTML, and tests each of them.
//!
//! A product is built and tested below `target/dist-stage`, and moved to `target/dist` when it is complete. So an interrupted
//! build leaves no incomplete file there.

use crate::peers;
use crate::run::{ARM, ARM_EMULATOR, ARM_PRELOAD, Outcome, add_target, cargo, for_arm, metadata, output, root, run};
use std::cell::Cell;
use std::fs;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Target whose C library is linked statically.
const STATIC_TARGET: &str = "x86_64-unknown-linux-musl";

/// Packages that a static binary for 64-bit Arm is tested with.
const EMULATOR: &[&str] = &["qemu-user"];

/// Packages that build Python wheels.
const WHEEL_MAKERS: &[&str] = &["setuptools>=61", "wheel"];

/// A release file.
struct Product {
    name: &'static str,
    /// Number of calls of [`Dist::step`].
    steps: usize,
    /// Builds and tests it. Returns the file, in its stage.
    make: fn(&Dist) -> Result<PathBuf, String>,
}

const PRODUCTS: &[Product] = &[
    Product { name: "deb", steps: 4, make: deb },
    Product { name: "static", steps: 3, make: static_binary },
    Product { name: "static-arm", steps: 3, make: static_arm },
    Product { name: "wheel", steps: 4, make: wheel },
    Product { name: "docs", steps: 2, make: docs },
];

/// Settings of a build.
struct Dist {
    version: String,
    /// `lto`, or `dev` to test the build itself.
    profile: String,
    /// Complete products.
    folder: PathBuf,
    /// Products that are being built.
    stage: PathBuf,
    started: Instant,
    /// Number of steps begun, and of all.
    steps: (Cell<usize>, usize),
}

/// `cargo xtask dist [deb|static|static-arm|wheel|docs ...] [--profile dev]`.
pub(crate) fn main(args: Vec<String>) -> Outcome {
    let mut profile = "lto".to_owned();
    let mut names = Vec::new();
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--profile" => profile = args.next().ok_or("--profile needs lto, release or dev")?,
            name if PRODUCTS.iter().any(|product| product.name == name) => names.push(arg),
            other => {
                return Err(format!(
                    "unknown product {other:?}: expected deb, static, static-arm, wheel, docs or --profile"
                ));
            }
        }
    }
    let packages = metadata()?;
    let cli = packages.iter().find(|package| package["name"] == "cli");
    let version = cli.and_then(|cli| cli["version"].as_str()).ok_or("cargo metadata: no version of cli")?.to_owned();
    let chosen = |product: &&Product| names.is_empty() || names.iter().any(|name| name == product.name);
    let products: Vec<&Product> = PRODUCTS.iter().filter(chosen).collect();
    let made = Dist::new(version, profile, &root().join("target"), &products).all(&products)?;
    println!();
    for file in made {
        let size = fs::metadata(&file).map_or(0, |file| file.len());
        println!("{} ({:.1} MiB)", file.display(), size as f64 / f64::from(1 << 20));
    }
    Ok(())
}

/// The line at the start of a step.
fn progress(step: usize, steps: usize, elapsed: Duration, what: &str) -> String {
    let (minutes, seconds) = (elapsed.as_secs() / 60, elapsed.as_secs() % 60);
    format!("== step {step} of {steps}, after {minutes}:{seconds:02} min: {what}")
}

impl Dist {
    fn new(version: String, profile: String, target: &Path, products: &[&Product]) -> Self {
        let steps = (Cell::new(0), products.iter().map(|product| product.steps).sum());
        let (folder, stage) = (target.join("dist"), target.join("dist-stage"));
        Self { version, profile, folder, stage, started: Instant::now(), steps }
    }

    /// Makes the products. Returns their files.
    fn all(&self, products: &[&Product]) -> Result<Vec<PathBuf>, String> {
        fs::create_dir_all(&self.folder).map_err(|error| format!("{}: {error}", self.folder.display()))?;
        let made = products.iter().map(|product| {
            let staged = (product.make)(self)?;
            let file = self.folder.join(staged.file_name().unwrap_or_default());
            fs::rename(&staged, &file).map_err(|error| format!("{}: {error}", file.display()))?;
            Ok(file)
        });
        let made = made.collect();
        // The next build removes what cannot be removed now.
        let _ = fs::remove_dir_all(&self.stage);
        made
    }

    /// Prints that the next step begins.
    fn step(&self, what: &str) {
        let (done, all) = &self.steps;
        done.set(done.get() + 1);
        println!("\n{}", progress(done.get(), *all, self.started.elapsed(), what));
    }

    /// Builds a package; returns the folder of its output.
    fn build(&self, package: &str, target: Option<&str>, features: &[&str]) -> Result<PathBuf, String> {
        let mut command = cargo(["build", "--package", package, "--profile", &self.profile]);
        // On a terminal, cargo shows its progress.
        command.args((!std::io::stderr().is_terminal()).then_some("--quiet"));
        command.args(features);
        if target == Some(ARM) {
            // The host's `strip` knows only the host's processor.
            for_arm(&mut command).args(["--config", &format!("profile.{}.strip=true", self.profile)]);
        } else {
            command.args(target.iter().flat_map(|target| ["--target", target]));
        }
        run(&mut command)?;
        let below = if self.profile == "dev" { "debug" } else { &self.profile };
        let place = root().join("target");
        Ok(target.map_or(place.clone(), |target| place.join(target)).join(below))
    }

    /// Makes an empty folder for the files of a product.
    fn stage(&self, name: &str) -> Result<PathBuf, String> {
        let stage = self.stage.join(name);
        match fs::remove_dir_all(&stage) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(format!("{}: {error}", stage.display()));
            }
            _ => {}
        }
        fs::create_dir_all(&stage).map_err(|error| format!("{}: {error}", stage.display()))?;
        Ok(stage)
    }
}

/// Installs a file with this mode. Programs are stripped of debug information.
fn install(from: &Path, to: &Path, mode: &str) -> Outcome {
    let strip: &[&str] = if mode == "755" { &["--strip", "--strip-program=strip"] } else { &[] };
    run(Command::new("install").arg("-D").args(strip).args(["-m", mode]).arg(from).arg(to))
}

fn write(path: &Path, text: impl AsRef<[u8]>) -> Outcome {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// The binary with its units, completions, manual pages, documents and examples; libtahti with its pkg-config and CMake files.
fn deb(dist: &Dist) -> Result<PathBuf, String> {
    dist.step("deb: build");
    let built = dist.build("cli", None, &["--features", "tls"])?;
    dist.step("deb: collect files");
    let stage = dist.stage("deb")?;
    let usr = stage.join("usr");
    run(Command::new("bindings/c/install.sh").arg(&usr).env("PROFILE", &dist.profile))?;
    library_for_all(&usr)?;
    install(&built.join("tahti"), &usr.join("bin/tahti"), "755")?;
    for unit in ["tahti@.service", "tahti-shield@.service"] {
        install(&root().join("contrib").join(unit), &usr.join("lib/systemd/system").join(unit), "644")?;
    }
    words(&usr)?;
    let documents = usr.join("share/doc/tahti");
    fs::create_dir_all(&documents).map_err(|error| format!("{}: {error}", documents.display()))?;
    run(Command::new("cp").args(["-r", "README.md", "CHANGELOG.md", "docs", "examples"]).arg(&documents))?;
    run(Command::new("cp").arg("LICENSE-MIT").arg(documents.join("copyright")))?;
    run(Command::new("chmod").args(["-R", "u=rwX,go=rX"]).arg(&stage))?;
    // A shared library needs no execute permission.
    run(Command::new("chmod").arg("644").arg(usr.join("lib/libtahti.so")))?;
    control(dist, &stage)?;
    dist.step("deb: compress");
    let file = dist.stage.join(format!("tahti_{}_amd64.deb", dist.version));
    run(Command::new("dpkg-deb").args(["--build", "--root-owner-group", "-Zxz"]).arg(&stage).arg(&file))?;
    // Test the unpacked package, as installing it would change this machine.
    dist.step("deb: test");
    let tried = dist.stage("deb-tried")?;
    run(Command::new("dpkg-deb").arg("--extract").arg(&file).arg(&tried))?;
    tried_out(&tried.join("usr/bin/tahti"), &dist.version)?;
    Ok(file)
}

/// Replaces the stage's prefix, which `install.sh` wrote into the pkg-config file, with `/usr`, and strips the library.
fn library_for_all(usr: &Path) -> Outcome {
    let file = usr.join("lib/pkgconfig/tahti.pc");
    let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    write(
        &file,
        text.replace(&format!("prefix={}", usr.display()), "prefix=/usr").replace("-Wl,-rpath,${prefix}/lib ", ""),
    )?;
    run(Command::new("strip").arg("--strip-unneeded").arg(usr.join("lib/libtahti.so")))
}

/// Shell completions and manual pages, generated by the binary itself.
fn words(usr: &Path) -> Outcome {
    let tahti = usr.join("bin/tahti");
    let places = [
        ("bash", "share/bash-completion/completions/tahti"),
        ("zsh", "share/zsh/vendor-completions/_tahti"),
        ("fish", "share/fish/vendor_completions.d/tahti.fish"),
    ];
    for (shell, place) in places {
        let file = usr.join(place);
        let folder = file.parent().unwrap_or(usr);
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        write(&file, output(Command::new(&tahti).args(["completion", shell]))?)?;
    }
    let pages = usr.join("share/man/man1");
    fs::create_dir_all(&pages).map_err(|error| format!("{}: {error}", pages.display()))?;
    run(Command::new(&tahti).args(["man", "--all"]).arg(&pages))?;
    run(Command::new("gzip").args(["--best", "--no-name", "--recursive"]).arg(&pages))
}

/// Writes dpkg's control files of a package.
fn control(dist: &Dist, stage: &Path) -> Outcome {
    let place = stage.join("DEBIAN");
    fs::create_dir_all(&place).map_err(|error| format!("{}: {error}", place.display()))?;
    let glibc = glibc_of(&stage.join("usr/bin/tahti"))?.max(glibc_of(&stage.join("usr/lib/libtahti.so"))?);
    let size = output(Command::new("du").args(["--summarize", "--block-size=1024"]).arg(stage.join("usr")))?;
    let size = size.split_whitespace().next().unwrap_or("0");
    let sums = "cd \"$0\" && find usr -type f -exec md5sum {} +";
    let sums = output(Command::new("sh").args(["-c", sums]).arg(stage))?;
    write(&place.join("md5sums"), sums)?;
    // Programs find the library only after ldconfig has run.
    write(&place.join("triggers"), "activate-noawait ldconfig\n")?;
    let text = format!(
        "Package: tahti\nVersion: {}\nArchitecture: amd64\nMaintainer: The tahti developers <tahti@localhost>\n\
         Installed-Size: {size}\nDepends: libc6 (>= {}.{}), libgcc-s1\nSuggests: rt-tests\nSection: science\nPriority: optional\n\
         Description: real-time controller on a stock Linux machine\n \
         Shields CPUs, brings up and supervises a real-time plant, serves an EPICS database,\n \
         carries messages to equipment, and measures that the deadlines hold.\n",
        dist.version, glibc.0, glibc.1
    );
    write(&place.join("control"), text)?;
    let reload = "#!/bin/sh\nset -e\n[ ! -d /run/systemd/system ] || systemctl daemon-reload || true\n";
    for script in ["postinst", "postrm"] {
        write(&place.join(script), reload)?;
        run(Command::new("chmod").arg("755").arg(place.join(script)))?;
    }
    Ok(())
}

/// The newest version of glibc that a program needs.
fn glibc_of(program: &Path) -> Result<(u32, u32), String> {
    let bytes = fs::read(program).map_err(|error| format!("{}: {error}", program.display()))?;
    const WORD: &[u8] = b"GLIBC_2.";
    let asked = bytes.windows(WORD.len() + 3).filter(|window| window.starts_with(WORD)).filter_map(|window| {
        let digits: Vec<u8> = window[WORD.len()..].iter().copied().take_while(u8::is_ascii_digit).collect();
        String::from_utf8(digits).ok()?.parse().ok()
    });
    asked.max().map(|minor| (2, minor)).ok_or_else(|| format!("{} asks for no version of glibc", program.display()))
}

/// A binary that runs on any Linux of this processor. It has a static C library and therefore no plug-ins.
fn static_binary(dist: &Dist) -> Result<PathBuf, String> {
    dist.step("static: install the target");
    add_target(STATIC_TARGET)?;
    dist.step("static: build");
    let built = dist.build("cli", Some(STATIC_TARGET), &[])?;
    dist.step("static: test");
    let file = dist.stage("static")?.join(format!("tahti-{}-x86_64-static", dist.version));
    install(&built.join("tahti"), &file, "755")?;
    let kind = output(Command::new("ldd").arg(&file)).unwrap_or_else(|why| why);
    if !kind.contains("statically linked") && !kind.contains("not a dynamic executable") {
        return Err(format!("{} is not static: ldd says {kind}", file.display()));
    }
    tried_out(&file, &dist.version)?;
    Ok(file)
}

/// The same for 64-bit Arm. The emulator tests it with `check` alone; the guest `arm` of `cargo xtask test-vm` runs plants.
fn static_arm(dist: &Dist) -> Result<PathBuf, String> {
    dist.step("static-arm: install the target and its emulator");
    peers::debian(EMULATOR)?;
    add_target(ARM)?;
    add_target(ARM_PRELOAD)?;
    dist.step("static-arm: build");
    let built = dist.build("cli", Some(ARM), &[])?;
    dist.step("static-arm: test");
    let stage = dist.stage("static-arm")?;
    let file = stage.join(format!("tahti-{}-aarch64-static", dist.version));
    run(Command::new("install").args(["-m", "755"]).arg(built.join("tahti")).arg(&file))?;
    let emulated = |words: &[&str]| {
        let mut command = Command::new(ARM_EMULATOR);
        command.arg(&file).args(words).current_dir(&stage);
        command
    };
    let version = output(&mut emulated(&["--version"]))?;
    if version.trim() != format!("tahti {}", dist.version) {
        return Err(format!("{} prints {version:?}", file.display()));
    }
    let plant = stage.join("plant").display().to_string();
    run(&mut emulated(&["init", &plant]))?;
    run(&mut emulated(&["check", &plant]))?;
    Ok(file)
}

/// Tests that a binary prints its version, checks and runs a plant, and resolves user names.
fn tried_out(tahti: &Path, version: &str) -> Outcome {
    let said = output(Command::new(tahti).arg("--version"))?;
    if said.trim() != format!("tahti {version}") {
        return Err(format!("{} says {said:?}", tahti.display()));
    }
    let state = std::env::temp_dir().join(format!("tahti-dist-{}", std::process::id()));
    let _ = fs::remove_dir_all(&state);
    let plant = state.join("plant");
    let command = |words: &[&str]| {
        let mut command = Command::new(tahti);
        command.args(words).arg(&plant).env("TAHTI_RUN", state.join("run"));
        command
    };
    let tried = [&["init"][..], &["check"]].into_iter().try_for_each(|words| run(&mut command(words)));
    // Any verdict is accepted: on this machine a loop may skip cycles. In the foreground, Ctrl-C stops the plant, too.
    let tried = tried.and_then(|()| match command(&["up", "--for", "2s"]).status().map(|status| status.code()) {
        Ok(Some(0 | 4)) => Ok(()),
        other => Err(format!("{} up: {other:?}", tahti.display())),
    });
    let user = tried.and_then(|()| output(Command::new(tahti).args(["run", "--", "true"])));
    let served = user.and_then(|_| serves(tahti, &state));
    let _ = fs::remove_dir_all(&state);
    served
}

/// Tests that the doctor runs, whatever it finds, and that a record is served and read over Channel Access.
fn serves(tahti: &Path, folder: &Path) -> Outcome {
    let said = Command::new(tahti).arg("doctor").output().map_err(|error| format!("{}: {error}", tahti.display()))?;
    if !String::from_utf8_lossy(&said.stdout).contains("1 kHz loop") {
        return Err(format!("doctor says {}", String::from_utf8_lossy(&said.stderr)));
    }
    let database = folder.join("tried.db");
    write(&database, "record(ai, \"tried:volts\") { field(VAL, \"3.25\") }\n")?;
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
    let port = port.map_err(|error| format!("a free port: {error}"))?.port().to_string();
    let mut ioc = Command::new(tahti)
        .args(["ioc", "-S", "-d"])
        .arg(&database)
        .env("EPICS_CA_SERVER_PORT", &port)
        .stdout(std::process::Stdio::null())
        .spawn()
        .map_err(|error| format!("{}: {error}", tahti.display()))?;
    let mut get = Command::new(tahti);
    get.args(["caget", "-t", "-w", "20", "tried:volts"]).env("EPICS_CA_SERVER_PORT", &port);
    let got = output(get.env("EPICS_CA_ADDR_LIST", "127.0.0.1").env("EPICS_CA_AUTO_ADDR_LIST", "NO"));
    // The IOC was started here and has no state to save.
    let _ = ioc.kill().and_then(|()| ioc.wait());
    match got?.trim() {
        "3.25" => Ok(()),
        other => Err(format!("caget says {other:?}, expected \"3.25\"")),
    }
}

/// The documentation as HTML pages.
fn docs(dist: &Dist) -> Result<PathBuf, String> {
    dist.step("docs: build");
    let built = dist.build("cli", None, &["--features", "tls"])?;
    dist.step("docs: write and compress the pages");
    let stage = dist.stage("docs")?.join(format!("tahti-docs-{}", dist.version));
    run(Command::new(built.join("tahti")).arg("docs").arg(&stage))?;
    let file = dist.stage.join(format!("tahti-docs-{}.tar.gz", dist.version));
    let (parent, name) = (stage.parent().unwrap_or(Path::new("/")), stage.file_name().unwrap_or_default());
    run(Command::new("tar")
        .arg("--create")
        .arg("--gzip")
        .arg("--file")
        .arg(&file)
        .arg("--directory")
        .arg(parent)
        .arg(name))?;
    Ok(file)
}

/// The Python package with the library in it.
fn wheel(dist: &Dist) -> Result<PathBuf, String> {
    dist.step("wheel: build the library");
    let built = dist.build("capi", None, &[])?;
    dist.step("wheel: install the tools");
    let bin = peers::python("dist", WHEEL_MAKERS)?;
    dist.step("wheel: build the package");
    let stage = dist.stage("wheel")?;
    run(Command::new("cp").args(["-r", "bindings/python/pyproject.toml", "bindings/python/tahti"]).arg(&stage))?;
    let library = stage.join("tahti/libtahti.so");
    install(&built.join("libtahti.so"), &library, "755")?;
    let glibc = glibc_of(&library)?;
    let out = dist.stage("wheel-made")?;
    let mut pip = Command::new(bin.join("pip"));
    pip.args(["wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--wheel-dir"]);
    run(pip.arg(&out).arg(&stage))?;
    let made = out.join(format!("tahti-{}-py3-none-any.whl", dist.version));
    let platform = format!("manylinux_{}_{}_x86_64", glibc.0, glibc.1);
    let mut tags = Command::new(bin.join("python"));
    run(tags.args(["-m", "wheel", "tags", "--remove", "--platform-tag", &platform]).arg(&made))?;
    let name = format!("tahti-{}-py3-none-{platform}.whl", dist.version);
    let file = out.join(&name);
    dist.step("wheel: test");
    // Test it in a separate environment, outside the folder with the source modules.
    let venv = dist.stage("wheel-tried")?;
    peers::environment(&venv)?;
    let mut pip = Command::new(venv.join("bin/pip"));
    run(pip.args(["install", "--quiet", "--disable-pip-version-check", "--no-index"]).arg(&file))?;
    let script = "import tahti; from tahti import _library; _library.lib(); print(_library.library())";
    let said = output(Command::new(venv.join("bin/python")).args(["-I", "-c", script]).env_remove("TAHTI_LIBRARY"))?;
    if !said.contains("site-packages/tahti/libtahti.so") {
        return Err(format!("the installed package has loaded another library: {said}"));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fails(dist: &Dist) -> Result<PathBuf, String> {
        dist.step("half: write");
        let file = dist.stage("half")?.join("half.deb");
        write(&file, "hal")?;
        Err("interrupted".to_owned())
    }

    fn succeeds(dist: &Dist) -> Result<PathBuf, String> {
        dist.step("whole: write");
        let file = dist.stage("whole")?.join("whole.deb");
        write(&file, "whole")?;
        assert!(!dist.folder.join("whole.deb").exists(), "not before its tests have passed");
        Ok(file)
    }

    #[test]
    fn only_complete_products_reach_the_folder() {
        let target = std::env::temp_dir().join(format!("tahti-xtask-dist-{}", std::process::id()));
        let products = [("whole", succeeds as fn(&Dist) -> _), ("half", fails)];
        let products = products.map(|(name, make)| Product { name, steps: 1, make });
        let products: Vec<&Product> = products.iter().collect();
        let dist = Dist::new("1".to_owned(), "dev".to_owned(), &target, &products);
        assert_eq!(dist.all(&products), Err("interrupted".to_owned()));
        let left: Vec<_> = fs::read_dir(target.join("dist")).unwrap().map(|file| file.unwrap().file_name()).collect();
        assert_eq!((left, target.join("dist-stage").exists()), (vec!["whole.deb".into()], false));
        assert_eq!((dist.steps.0.get(), dist.steps.1), (2, 2));
        fs::remove_dir_all(target).unwrap();
    }

    #[test]
    fn a_step_is_printed_with_its_number_and_the_time_elapsed() {
        let line = progress(3, 13, Duration::from_secs(125), "deb: compress");
        assert_eq!(line, "== step 3 of 13, after 2:05 min: deb: compress");
    }
}
