//! Finds the path of a program like `execvp(3)`.

use rustix::fs::{Access, access};
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Search path if `PATH` is not set.
const FOLDERS: &str = "/usr/local/bin:/usr/bin:/bin";

/// Reason why a program cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// No such file.
    File(PathBuf),
    /// A file without permission to execute it.
    Executable(PathBuf),
    /// No folder contains it.
    Program {
        /// Its name.
        name: String,
        /// The search path.
        path: String,
    },
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{} does not exist", path.display()),
            Self::Executable(path) => {
                write!(f, "{} is no executable file (`chmod +x` makes it one)", path.display())
            }
            Self::Program { name, path } => write!(f, "{name:?} is in no folder of PATH ({path})"),
        }
    }
}

impl std::error::Error for Missing {}

/// The program's absolute path. A name with a slash is a file, relative to `dir`. Any other name is searched in the
/// folders of `path`, by default this process's `PATH`.
///
/// Blocks on the file system; allocates.
///
/// # Errors
/// There is no such program that this process may run.
pub fn find(name: impl AsRef<OsStr>, dir: &Path, path: Option<&str>) -> Result<PathBuf, Missing> {
    let name = name.as_ref();
    let runs = |path: &Path| path.is_file() && access(path, Access::EXEC_OK).is_ok();
    let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
    if name.as_bytes().contains(&b'/') {
        let path = dir.join(name);
        return match () {
            () if runs(&path) => Ok(absolute(path)),
            () if path.exists() => Err(Missing::Executable(path)),
            () => Err(Missing::File(path)),
        };
    }
    let own = || std::env::var_os("PATH").unwrap_or_else(|| FOLDERS.into());
    let path = path.map_or_else(own, Into::into);
    let found = std::env::split_paths(&path).map(|folder| dir.join(folder).join(name)).find(|path| runs(path));
    found.map(absolute).ok_or_else(|| Missing::Program {
        name: name.to_string_lossy().into_owned(),
        path: path.to_string_lossy().into_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_searched_in_path_and_a_path_is_not() {
        let here = Path::new("/");
        assert_eq!(find("sh", here, Some("/nowhere:/bin")), Ok("/bin/sh".into()));
        assert_eq!(find("sh", here, Some("bin")), Ok("/bin/sh".into()));
        assert_eq!(find("bin/sh", here, Some("/nowhere")), Ok("/bin/sh".into()));
        assert_eq!(find("./sh", here, Some("/bin")), Err(Missing::File("/./sh".into())));
        assert_eq!(find("bin/", here, None), Err(Missing::Executable("/bin/".into())));
        let missing = Missing::Program { name: "no-such-program".into(), path: "/bin".into() };
        assert_eq!(find("no-such-program", here, Some("/bin")), Err(missing));
    }
}
