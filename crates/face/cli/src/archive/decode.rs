//! Reads Parquet files of other programs in a separate process.
//!
//! The Parquet library may end its process on a damaged file. It may panic, which aborts in a release build, or it may
//! ask for more memory than is available. `import` therefore starts `tahti archive decode`, which writes the rows as a
//! text table, and reads that table.

use super::visible;
use crate::failure::{Failure, own_program};
use columns::ParquetReader;
use exchange::{CsvReader, CsvWriter, ExchangeError, Row, Writer as _};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};

/// Write what a Parquet file holds as a table of text
#[derive(clap::Args)]
pub(super) struct Args {
    /// The file
    file: PathBuf,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let shown = visible(&args.file.display().to_string()).to_string();
    let failed = |error: &dyn std::fmt::Display| format!("{shown}: {error}");
    report_panics(shown.clone());
    let file = File::open(&args.file).map_err(|error| failed(&error))?;
    let mut writer = CsvWriter::new(BufWriter::new(io::stdout().lock()), true);
    for row in ParquetReader::new(file).map_err(|error| failed(&error))? {
        writer.write(&row.map_err(|error| failed(&error))?).map_err(|error| failed(&error))?;
    }
    Box::new(writer).finish().map_err(|error| failed(&error))?;
    Ok(ExitCode::SUCCESS)
}

/// Installs a panic hook that reports a damaged file in one line and exits with status 1.
fn report_panics(shown: String) {
    std::panic::set_hook(Box::new(move |_| {
        eprintln!(
            "tahti: {shown}: damaged: its pages cannot be read; expected a whole Parquet file: put it back from a copy"
        );
        std::process::exit(1);
    }));
}

/// Iterator over the rows of a Parquet file, decoded by a child process.
pub(super) struct Decoded {
    child: Child,
    /// `None` after the last row.
    rows: Option<CsvReader<BufReader<ChildStdout>>>,
}

impl Decoded {
    pub(super) fn start(path: &Path) -> Result<Self, Failure> {
        let mut command = Command::new(own_program()?);
        command.args(["archive", "decode"]).arg(path);
        Ok(Self::of(command)?)
    }

    fn of(mut command: Command) -> Result<Self, ExchangeError> {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let out = child.stdout.take();
        let mut decoded = Self { child, rows: None };
        let Some(out) = out else { return Ok(decoded) };
        let mut input = BufReader::new(out);
        if input.fill_buf()?.is_empty() {
            decoded.ended()?;
        } else {
            decoded.rows = Some(CsvReader::new(input)?);
        }
        Ok(decoded)
    }

    /// Waits for the child process to end.
    ///
    /// # Errors
    /// If the child did not read the whole file.
    fn ended(&mut self) -> Result<(), ExchangeError> {
        self.rows = None;
        let status = self.child.wait()?;
        if status.success() {
            return Ok(());
        }
        let why = format!(
            "the process that reads it failed ({status}); expected a whole Parquet file: put it back from a copy"
        );
        Err(io::Error::other(why).into())
    }
}

impl Iterator for Decoded {
    type Item = Result<Row, ExchangeError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.rows.as_mut()?.next() {
            Some(Ok(row)) => Some(Ok(row)),
            // If the child failed, its last row is truncated. The exit status is then the error to report.
            Some(Err(error)) => Some(Err(self.ended().err().unwrap_or(error))),
            None => self.ended().err().map(Err),
        }
    }
}

impl Drop for Decoded {
    fn drop(&mut self) {
        // The child has ended already, unless the reader stopped early.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(script: &str) -> Vec<Result<Row, String>> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        match Decoded::of(command) {
            Ok(rows) => rows.map(|row| row.map_err(|error| error.to_string())).collect(),
            Err(error) => vec![Err(error.to_string())],
        }
    }

    #[test]
    fn an_aborted_reader_ends_with_an_error_after_the_rows_it_has_read() {
        let table = "printf 'signal,time_ns,type,value\\nA,1,f64,2\\n'";
        assert!(matches!(rows(table)[..], [Ok(_)]));
        for script in [format!("{table}; kill -ABRT $$"), format!("{table}; printf 'A,2'; kill -ABRT $$")] {
            let rows = rows(&script);
            let [Ok(_), Err(why)] = &rows[..] else { panic!("{rows:?}") };
            assert!(why.contains("the process that reads it failed (signal: 6"), "{why}");
        }
        let nothing = rows("exit 1");
        assert!(matches!(&nothing[..], [Err(why)] if why.contains("exit status: 1")), "{nothing:?}");
        assert!(rows("true").is_empty());
    }
}
