//! Programs that multiply with other libraries: each a process that answers requests on the CPU of the caller.

use crate::Failed;
use crate::compute::WARM;
use crate::measure::ended;
use kernels::Level;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const OPENBLAS: &str = include_str!("openblas.c");
const NUMPY: &str = include_str!("numpy.py");
/// Core (SSE3) that OpenBLAS selects on a CPU newer than itself: a tenth as fast as the widest.
const UNKNOWN: &str = "Prescott";

/// A program that waits for requests; ended on drop.
pub(super) struct Program {
    name: &'static str,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// Its version.
    pub(super) version: String,
    /// The folder of the built program, removed on drop.
    built: Option<Built>,
}

/// A folder of files of this measurement alone.
struct Built(PathBuf);

impl Drop for Built {
    fn drop(&mut self) {
        // A folder that cannot be removed stays in the directory for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Program {
    /// OpenBLAS from this library, called by a program built here.
    ///
    /// # Errors
    /// There is no C compiler, or no such library.
    pub(super) fn openblas(library: &Path) -> Result<Self, Failed> {
        let folder = std::env::temp_dir().join(format!("tahti-compute-{}", std::process::id()));
        std::fs::create_dir(&folder).map_err(Failed::file(&folder))?;
        let built = Built(folder.clone());
        let (source, program) = (folder.join("openblas.c"), folder.join("openblas"));
        std::fs::write(&source, OPENBLAS).map_err(Failed::file(&source))?;
        let output = Command::new("cc").args(["-O2", "-o"]).arg(&program).arg(&source).arg("-ldl").output();
        let output = output.map_err(|source| Failed::NoPeer { program: "cc", package: "gcc", source })?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(Failed::answer("cc, building the program that calls OpenBLAS", "a program", why));
        }
        let started = |core| {
            let mut command = Command::new(&program);
            command.arg(library);
            Self::start("OpenBLAS", command, core)
        };
        let mut this = started(None)?;
        let core = [("avx512", "SkylakeX"), ("avx2", "Haswell")];
        let core = core.into_iter().find(|(level, _)| Level::named(level).is_ok()).map(|(_, core)| core);
        if let Some(core) = core.filter(|_| this.version.contains(UNKNOWN)) {
            this = started(Some(core))?;
            this.version += &format!(", set explicitly: it does not know this CPU and would select {UNKNOWN}");
        }
        this.built = Some(built);
        Ok(this)
    }

    /// numpy by this interpreter.
    ///
    /// # Errors
    /// There is no such interpreter, or it has no numpy.
    pub(super) fn numpy(python: &Path) -> Result<Self, Failed> {
        let mut command = Command::new(python);
        command.args(["-c", NUMPY]);
        Self::start("numpy", command, None)
    }

    fn start(name: &'static str, mut command: Command, core: Option<&str>) -> Result<Self, Failed> {
        // One thread, and the library's own selection for this CPU, unless one is set.
        command.env("OPENBLAS_NUM_THREADS", "1").env("OMP_NUM_THREADS", "1").env("MKL_NUM_THREADS", "1");
        command.env_remove("OPENBLAS_CORETYPE").env_remove("OPENBLAS_L2_SIZE");
        command.envs(core.map(|core| ("OPENBLAS_CORETYPE", core)));
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(Failed::process(&program))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let Some(output) = output.map(BufReader::new) else { return Err(Failed::answer(name, "its output", "none")) };
        let mut this = Self { name, child, input, output, version: String::new(), built: None };
        let line = this.line()?;
        this.version = match line.strip_prefix("ready ") {
            Some(version) => version.to_owned(),
            None => return Err(Failed::answer(name, "a library that can be loaded", line)),
        };
        Ok(this)
    }

    /// Nanoseconds of products of a matrix of this size, stored by rows or by columns, after [`WARM`] untimed ones; and the sum of
    /// the result's elements.
    pub(super) fn products(&mut self, by_rows: bool, size: usize, times: usize) -> Result<(f64, f64), Failed> {
        let request = format!("{} {size} {WARM} {times}\n", if by_rows { 'r' } else { 'c' });
        let sent = self.input.as_mut().map_or(Ok(()), |input| input.write_all(request.as_bytes()));
        sent.map_err(Failed::process(self.name))?;
        let line = self.line()?;
        let answer = line.split_once(' ').and_then(|(took, sum)| Some((took.parse().ok()?, sum.parse().ok()?)));
        answer.ok_or_else(|| Failed::answer(self.name, "nanoseconds and a sum", line))
    }

    fn line(&mut self) -> Result<String, Failed> {
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(Failed::process(self.name))?;
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.input.take());
        ended(&mut self.child);
        drop(self.built.take());
    }
}
