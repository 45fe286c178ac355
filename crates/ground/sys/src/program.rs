//! Finds the path of a program like `execvp(3)`.

use rustix::fs::{Access, access};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
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
    /// A script whose interpreter does not exist.
    Interpreter {
        /// The script.
        script: PathBuf,
        /// The interpreter in its first line.
        name: String,
    },
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
            Self::Interpreter { script, name } => {
                write!(f, "{} names the interpreter {name:?}, which does not exist", script.display())
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
/// There is no such program that this process may run, or its interpreter is missing.
pub fn find(name: impl AsRef<OsStr>, dir: &Path, path: Option<&str>) -> Result<PathBuf, Missing> {
    let found = file_of(name, dir, path)?;
    match interpreter(&found) {
        Some(name) if Path::new(&name).try_exists().is_ok_and(|exists| !exists) => {
            Err(Missing::Interpreter { script: found, name: name.to_string_lossy().into_owned() })
        }
        _ => Ok(found),
    }
}

/// The interpreter in the first line of a script, as the kernel reads it: a carriage return belongs to the name. `None` for
/// other files, and for a name that is relative to the folder at the start.
fn interpreter(file: &Path) -> Option<OsString> {
    // The kernel reads 256 bytes (`BINPRM_BUF_SIZE`).
    let mut first = Vec::with_capacity(256);
    File::open(file).ok()?.take(256).read_to_end(&mut first).ok()?;
    let line = first.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let name = line.trim_ascii_start();
    let end = name.iter().position(|byte| matches!(byte, b' ' | b'\t' | 0)).unwrap_or(name.len());
    name.starts_with(b"/").then(|| OsString::from_vec(name[..end].to_vec()))
}

fn file_of(name: impl AsRef<OsStr>, dir: &Path, path: Option<&str>) -> Result<PathBuf, Missing> {
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

/// The first part of the path of a program or folder that a user with these groups may not enter or execute, by mode bits.
/// A script must be readable, too. `None` if the user may, for root, and where an access control list or an unreadable part
/// leaves it open.
///
/// Blocks on the file system; allocates.
#[must_use]
pub fn barred(path: &Path, uid: u32, groups: &[u32]) -> Option<PathBuf> {
    if uid == 0 {
        return None;
    }
    let path = path.canonicalize().ok()?;
    let is_script = path.is_file() && interpreter(&path).is_some();
    let parts: Vec<&Path> = path.ancestors().collect();
    parts.into_iter().rev().find(|part| !may(part, uid, groups, is_script && **part == *path)).map(Path::to_owned)
}

fn may(part: &Path, uid: u32, groups: &[u32], reads: bool) -> bool {
    let Ok(about) = part.metadata() else { return true };
    let has_list = rustix::fs::getxattr(part, c"system.posix_acl_access", &mut [0u8; 0]).is_ok_and(|bytes| bytes > 0);
    let shift = match () {
        () if about.uid() == uid => 6,
        () if groups.contains(&about.gid()) => 3,
        () => 0,
    };
    let wanted = if reads { 0o5 } else { 0o1 };
    has_list || about.mode() >> shift & wanted == wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_needs_its_interpreter() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = std::env::temp_dir().join(format!("tahti-sys-program-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let found = |first: &str| {
            let script = folder.join("script");
            std::fs::write(&script, first).unwrap();
            std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
            match find("./script", &folder, None) {
                Err(Missing::Interpreter { name, .. }) => Some(name),
                Err(other) => panic!("{other}"),
                Ok(_) => None,
            }
        };
        for good in ["#!/bin/sh\n", "#! /bin/sh -e\n", "#!/bin/sh", "#!relative\n", "\u{7f}ELF", ""] {
            assert_eq!(found(good), None, "{good:?}");
        }
        assert_eq!(found("#!/usr/bin/pythn3\n").as_deref(), Some("/usr/bin/pythn3"));
        assert_eq!(found("#! /usr/bin/pythn3 -u\n").as_deref(), Some("/usr/bin/pythn3"));
        assert_eq!(found("#!/bin/sh\r\necho\r\n").as_deref(), Some("/bin/sh\r"));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_part_of_a_path_without_permission_is_found() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = std::env::temp_dir().join(format!("tahti-sys-barred-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("in")).unwrap();
        let folder = folder.canonicalize().unwrap();
        let (inner, script, program) = (folder.join("in"), folder.join("in/script"), folder.join("in/program"));
        std::fs::write(&script, "#!/bin/sh\n").unwrap();
        std::fs::write(&program, "\u{7f}ELF").unwrap();
        let modes = |modes: [u32; 3]| {
            for (path, mode) in [&inner, &script, &program].into_iter().zip(modes) {
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
            }
        };
        let about = folder.metadata().unwrap();
        let (stranger, group) = (about.uid() + 1, about.gid());
        modes([0o711, 0o755, 0o711]);
        assert_eq!([&script, &program].map(|path| barred(path, stranger, &[])), [None, None]);
        modes([0o711, 0o711, 0o610]);
        assert_eq!(barred(&script, stranger, &[]), Some(script.clone()), "a script is read by its interpreter");
        assert_eq!(barred(&program, stranger, &[]), Some(program.clone()));
        assert_eq!(barred(&program, stranger, &[group]), None);
        modes([0o700, 0o755, 0o755]);
        assert_eq!(barred(&program, stranger, &[]), Some(inner.clone()));
        assert_eq!(barred(&inner, stranger, &[]), Some(inner.clone()));
        assert_eq!(barred(&program, 0, &[]), None);
        std::fs::remove_dir_all(folder).unwrap();
    }

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
