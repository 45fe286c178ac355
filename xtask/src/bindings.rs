//! `cargo xtask test bindings`: installs libtahti, finds it with CMake, pkg-config and pip, and runs programs with it.

use crate::peers;
use crate::run::{Outcome, output, root, run};
use crate::suite::{self, Show, Suite};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Installs libtahti into a folder, builds the examples against it by CMake and by pkg-config, and runs them.
pub(crate) fn main() -> Outcome {
    let place = peers::folder().join("bindings");
    let _ = fs::remove_dir_all(&place);
    let prefix = place.join("prefix");
    run(Command::new("bindings/c/install.sh").arg(&prefix).env("PROFILE", "dev"))?;
    for example in ["team", "frames", "loop", "messages"] {
        let build = place.join(example);
        let found = format!("-DCMAKE_PREFIX_PATH={}", prefix.display());
        let source = root().join("examples").join(example);
        run(Command::new("cmake").arg("-S").arg(source).arg("-B").arg(&build).arg(found))?;
        run(Command::new("cmake").arg("--build").arg(&build))?;
    }
    by_pkg_config(&place, &prefix)?;
    run(suite::for_tests("build")?.args(["--quiet", "--bin", "tahti"]))?;
    team(&place)?;
    run(&mut Command::new(place.join("loop/loop")))?;
    frame(&place)?;
    messages(&place)?;
    python(&place, &prefix)?;
    numpy()
}

/// The streams of the adaptive-optics loop, read by NumPy.
fn numpy() -> Outcome {
    let python = peers::python("numpy", &["numpy"])?.join("python");
    Suite::of("bindings")?.env("TAHTI_PYTHON", python).run(Show::Live)
}

/// Builds the same source with the flags of pkg-config and the C compiler's strictest warnings, as C and as C++.
fn by_pkg_config(place: &Path, prefix: &Path) -> Outcome {
    let flags = output(
        Command::new("pkg-config")
            .args(["--cflags", "--libs", "tahti"])
            .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")),
    )?;
    let flags: Vec<&str> = flags.split_whitespace().collect();
    let strict = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];
    let mut c = Command::new("cc");
    run(c.args(["-std=c99"]).args(strict).arg("-o").arg(place.join("meet")).arg("examples/team/meet.c").args(&flags))?;
    for (source, program) in [("magnet.c", "magnet"), ("operator.c", "operator")] {
        let mut c = Command::new("cc");
        c.args(["-std=c99"]).args(strict).arg("-o").arg(place.join(program));
        run(c.arg(format!("examples/messages/{source}")).args(&flags).arg("-lm"))?;
    }
    let mut c = Command::new("cc");
    run(c
        .args(["-std=c99"])
        .args(strict)
        .arg("-o")
        .arg(place.join("loop-c99"))
        .arg("examples/loop/loop.c")
        .args(&flags))?;
    let mut cpp = Command::new("c++");
    cpp.args(["-std=c++17", "-pthread"]).args(strict).arg("-o").arg(place.join("sum"));
    run(cpp.arg("examples/team/sum.cpp").args(&flags))
}

/// Runs two processes in C, one from each build, and a team of threads in C++.
fn team(place: &Path) -> Outcome {
    run(&mut Command::new(place.join("sum")))?;
    run(&mut Command::new(place.join("team/sum")))?;
    run(Command::new(place.join("team/share")).arg("2"))?;
    let mut serve = Command::new(place.join("meet"))
        .arg("serve")
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("meet serve: {error}"))?;
    // It prints a line once all its data are offered.
    let said = serve.stdout.take().map(BufReader::new);
    let mut lines = said.into_iter().flat_map(BufRead::lines).map_while(Result::ok);
    let joined = match lines.next() {
        Some(_) => output(Command::new(place.join("team/meet")).arg("join")),
        None => Err("meet serve said nothing".to_owned()),
    };
    if joined.is_err() {
        // Fails only if the process has already ended.
        let _ = serve.kill();
    }
    let served = lines.last().unwrap_or_default();
    let ended = serve.wait().map_err(|error| format!("meet serve: {error}"))?;
    let joined = joined?;
    let expected = |role: &str| format!("{role}: token 200 after 100 rounds");
    if served != expected("serve") || joined.trim() != expected("join") || !ended.success() {
        return Err(format!("meet said {served:?} and {joined:?} and ended with {ended}"));
    }
    println!("{served}; {}", joined.trim());
    Ok(())
}

/// Runs the example's frame with the programs that CMake built. It uses no scheduling class and no reserved CPUs, so that
/// it runs on any machine.
fn frame(place: &Path) -> Outcome {
    let folder = place.join("frames");
    let plant = root().join("examples/frames/plant.toml");
    let text = fs::read_to_string(&plant).map_err(|error| format!("{}: {error}", plant.display()))?;
    let modest = |line: &&str| !line.starts_with("cpu =") && !line.starts_with("class =");
    let mut text: String = text.lines().filter(modest).map(|line| format!("{line}\n")).collect();
    text = text.replace("period = \"1ms\"", "period = \"5ms\"").replace("name = \"frames\"", "name = \"bindings\"");
    fs::write(folder.join("plant.toml"), text).map_err(|error| format!("{}: {error}", folder.display()))?;
    // Sets the state folder of `tahti up`. It must be as short as the path of a Unix socket.
    let state = std::env::temp_dir().join(format!("tahti-bindings-{}", std::process::id()));
    let tahti = |words: &[&str]| {
        let mut command = Command::new(root().join("target/debug/tahti"));
        command.args(words).env("TAHTI_RUN", &state);
        command
    };
    let up = tahti(&["up", "--no-dashboard", "--for", "4s"]).arg(&folder).status();
    let ran = match up.as_ref().map(std::process::ExitStatus::code) {
        // 4: degraded, because a busy machine skips minor frames.
        Ok(Some(0 | 4)) => Ok(()),
        _ => Err(format!("`tahti up {}`: {up:?}", folder.display())),
    };
    // The frame's report: each row of its table of activities begins with name, budget, calls.
    let said = ran.and_then(|()| {
        let log = output(tahti(&["logs", "fast", "--lines", "1000", "--plant"]).arg(&folder))?;
        let table = log.rsplit_once(" activity            budget     calls ").map_or("", |(_, table)| table);
        for (activity, language) in [("control", "C"), ("filter", "C++")] {
            let mut rows = table.lines().map(|line| line.split_whitespace().skip(1).collect::<Vec<_>>());
            let calls = rows.find(|row| row.first() == Some(&activity)).and_then(|row| row.get(2)?.parse().ok());
            match calls {
                Some(1u64..) => println!("{activity} in {language} was called by its frame"),
                found => return Err(format!("{activity} in {language} ran {found:?} calls:\n{log}")),
            }
        }
        Ok(())
    });
    let _ = fs::remove_dir_all(&state);
    said
}

/// A child process that is killed on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Fails only if the process has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    /// Starts it and waits until it prints `ready` on the stream that `stream` takes.
    fn until<R: Read>(
        command: &mut Command,
        stream: impl FnOnce(&mut Child) -> Option<R>,
        ready: &str,
    ) -> Result<(Self, BufReader<R>), String> {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = Self(child.map_err(|error| format!("{command:?}: {error}"))?);
        let mut said = BufReader::new(stream(&mut child.0).ok_or("no stream")?);
        let (mut line, mut all) = (String::new(), String::new());
        while !line.contains(ready) {
            line.clear();
            if said.read_line(&mut line).map_err(|error| error.to_string())? == 0 {
                return Err(format!("{command:?} said {all:?}; expected {ready:?}"));
            }
            all += &line;
        }
        Ok((child, said))
    }
}

/// Runs a message server, a manager and a client in C.
fn messages(place: &Path) -> Outcome {
    let name = format!("bindings-{}", std::process::id());
    let mut serve = Command::new(root().join("target/debug/tahti"));
    serve.args(["msg", "serve", "--name", &name]);
    let _server = Running::until(&mut serve, |child| child.stderr.take(), "serving as")?;
    let mut magnet = Command::new(place.join("magnet"));
    let _magnet = Running::until(magnet.arg(&name), |child| child.stdout.take(), "serving demo_mag")?;
    for program in ["operator", "messages/operator"] {
        let said = output(Command::new(place.join(program)).arg(&name))?;
        if said != "OK 2.5A\n100 answered, 9 of them NO_OBJECT\n" {
            return Err(format!("{program} said {said:?}"));
        }
    }
    println!("operator asked magnet through a message server, both in C");
    Ok(())
}

/// Installs the Python package, ZeroMQ's and a validator of JSON Schema in a separate environment.
fn python(place: &Path, prefix: &Path) -> Outcome {
    let venv = place.join("venv");
    peers::environment(&venv)?;
    let mut install = Command::new(venv.join("bin/pip"));
    run(install.args(["install", "--quiet", "--disable-pip-version-check", "./bindings/python"]))?;
    let mut tests = Command::new(venv.join("bin/python"));
    tests.arg("bindings/python/tests.py").arg(place.join("team/meet")).arg(place.join("messages/magnet"));
    tests.arg(root().join("target/debug/tahti"));
    run(tests.env("TAHTI_LIBRARY", prefix.join("lib/libtahti.so")))?;
    let mut install = Command::new(venv.join("bin/pip"));
    run(install.args(["install", "--quiet", "--disable-pip-version-check", "pyzmq>=26", "jsonschema>=4"]))?;
    let mut tests = Command::new(venv.join("bin/python"));
    run(tests.arg("bindings/schema_tests.py").arg(root().join("target/debug/tahti")))?;
    let mut tests = Command::new(venv.join("bin/python"));
    tests.arg("bindings/zmq_tests.py").arg(place.join("messages/magnet"));
    run(tests.arg(root().join("target/debug/tahti")).env("TAHTI_LIBRARY", prefix.join("lib/libtahti.so")))
}
