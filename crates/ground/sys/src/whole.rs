//! Files as a whole: atomic replacement, removal, and whether an open file is still the one at its path.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Event that the new content must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survives {
    /// Any process may be killed.
    Kill,
    /// Power may be lost as well: the file and its directory are synced before `replace` returns.
    PowerLoss,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Create,
    Write,
    Sync,
    Rename,
    SyncDir,
}

/// Replaces a file atomically: a reader finds the old content or the new one, never a part, also after a kill or on a
/// full disk. The content is first written to `NAME.new` in the same directory; a leftover file of that name is
/// removed. Symbolic links are not followed: one at `path` is replaced, one at `NAME.new` is removed.
///
/// `mode` is the mode of the new file before the umask. Concurrent writers of one file must use a separate lock.
/// Allocates and blocks on the disk.
///
/// # Errors
/// The kernel's. The old content is then preserved, unless only the sync of the directory failed.
pub fn replace(path: &Path, content: &[u8], mode: u32, survives: Survives) -> io::Result<()> {
    replace_in_steps(path, content, mode, survives, |_| Ok(()))
}

/// Calls `before` ahead of each step, so that a test can make it fail or kill the process there.
fn replace_in_steps(
    path: &Path,
    content: &[u8],
    mode: u32,
    survives: Survives,
    before: impl Fn(Step) -> io::Result<()>,
) -> io::Result<()> {
    let temporary = temporary(path);
    remove(&temporary)?;
    let durable = survives == Survives::PowerLoss;
    let replaced = (|| {
        before(Step::Create)?;
        // Fails if anything was created there meanwhile, including a link.
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
        before(Step::Write)?;
        file.write_all(content)?;
        if durable {
            before(Step::Sync)?;
            file.sync_all()?;
        }
        before(Step::Rename)?;
        fs::rename(&temporary, path)?;
        if durable {
            before(Step::SyncDir)?;
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
        }
        Ok(())
    })();
    if replaced.is_err() {
        // An incomplete file only takes space; the first error is the relevant one.
        let _ = remove(&temporary);
    }
    replaced
}

/// Removes a file or a symbolic link. A missing file is not an error.
///
/// # Errors
/// The kernel's.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Whether an open file is the one at this path, by device and inode. Another program may have moved, removed or replaced it.
///
/// # Errors
/// The kernel's.
pub fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    match fs::metadata(path) {
        Ok(found) => file.metadata().map(|open| (open.dev(), open.ino()) == (found.dev(), found.ino())),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
        Err(error) => Err(error),
    }
}

fn temporary(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".new");
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;
    use std::os::unix::fs::symlink;

    const STEPS: [Step; 5] = [Step::Create, Step::Write, Step::Sync, Step::Rename, Step::SyncDir];

    /// A folder with the file `a`, which contains `old`.
    fn folder(name: &str) -> (PathBuf, PathBuf) {
        let folder = std::env::temp_dir().join(format!("tahti-whole-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("a");
        fs::write(&file, "old").unwrap();
        (folder, file)
    }

    #[test]
    fn a_file_is_replaced_with_the_requested_mode() {
        let (folder, file) = folder("mode");
        for survives in [Survives::Kill, Survives::PowerLoss] {
            replace(&file, b"new", 0o600, survives).unwrap();
            assert_eq!((fs::read(&file).unwrap(), fs::metadata(&file).unwrap().mode() & 0o777), (b"new".into(), 0o600));
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn on_a_full_disk_the_old_content_stays_and_no_temporary_file_remains() {
        let (folder, file) = folder("full");
        for fails in STEPS {
            fs::write(&file, "old").unwrap();
            let full = |step| if step == fails { Err(Errno::NOSPC.into()) } else { Ok(()) };
            let error = replace_in_steps(&file, b"new", 0o600, Survives::PowerLoss, full).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::StorageFull);
            let expected = if fails == Step::SyncDir { "new" } else { "old" };
            assert_eq!(fs::read_to_string(&file).unwrap(), expected, "{fails:?}");
            assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "{fails:?}");
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_kill_before_any_step_leaves_the_old_or_the_new_content_and_the_next_replace_succeeds() {
        let (folder, file) = folder("kill");
        for killed in STEPS {
            fs::write(&file, "old").unwrap();
            let kill = |step| {
                if step == killed {
                    // The calling process, which is the child below.
                    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
                }
                Ok(())
            };
            // SAFETY: the child opens, writes and renames files, and ends; it takes no lock that another thread may hold.
            let child = unsafe { libc::fork() };
            assert!(child >= 0);
            if child == 0 {
                let _ = replace_in_steps(&file, b"new", 0o600, Survives::PowerLoss, kill);
                // SAFETY: ends the child without running the parent's destructors.
                unsafe { libc::_exit(0) };
            }
            let mut status = 0;
            // SAFETY: waits for the child above.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL);
            let expected = if killed == Step::SyncDir { "new" } else { "old" };
            assert_eq!(fs::read_to_string(&file).unwrap(), expected, "{killed:?}");
            replace(&file, b"next", 0o600, Survives::PowerLoss).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), "next");
            assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "{killed:?}");
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn no_link_is_followed_at_the_path_of_the_file_or_of_its_temporary_file() {
        let (folder, file) = folder("link");
        let victim = folder.join("victim");
        fs::write(&victim, "precious").unwrap();
        for target in [victim.clone(), folder.join("not-there")] {
            fs::remove_file(&file).unwrap();
            symlink(&target, &file).unwrap();
            symlink(&target, temporary(&file)).unwrap();
            replace(&file, b"new", 0o600, Survives::Kill).unwrap();
            assert!(fs::symlink_metadata(&file).unwrap().is_file());
        }
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert!(!folder.join("not-there").exists());
        // Another process creates the file first.
        let planted = |step| if step == Step::Create { symlink(&victim, temporary(&file)) } else { Ok(()) };
        let error = replace_in_steps(&file, b"newer", 0o600, Survives::Kill, planted).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        fs::remove_dir_all(folder).unwrap();
    }
}
