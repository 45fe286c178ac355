//! Programs that fork while their other threads hold locks of the dynamic linker and of the C library.

use heap::layout::{MAGIC, MODULE_WORDS, MODULES_AT, head};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const FORKS: usize = 200;

/// A separate folder for each test.
struct Folder(PathBuf);

impl Folder {
    fn make() -> Self {
        let path = std::env::temp_dir().join(format!("tahti-heap-forks-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The beginning of a file of counts, as words.
fn words(path: &Path) -> Vec<u64> {
    let mut bytes = Vec::new();
    File::open(path).unwrap().take((MODULES_AT + MODULE_WORDS) as u64 * 8).read_to_end(&mut bytes).unwrap();
    bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect()
}

#[test]
fn allocations_after_a_fork_with_the_linkers_lock_held_are_counted() {
    let folder = Folder::make();
    let (library, program) = (folder.0.join("libtahti_heap.so"), folder.0.join("forks"));
    std::fs::write(&library, heap::LIBRARY).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/forks.c");
    let flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"];
    let compiled = Command::new("cc").arg(source).args(flags).arg(&program).status();
    assert!(compiled.expect("cc (a C compiler) is needed: install gcc").success());
    let mut command = Command::new(&program);
    let output =
        command.arg(FORKS.to_string()).env("LD_PRELOAD", &library).env(heap::FOLDER, &folder.0).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, "hung 0, failed 0\n", "{}", String::from_utf8_lossy(&output.stderr));

    let counts = std::fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().path());
    let counts: Vec<Vec<u64>> =
        counts.filter(|path| path.extension().is_some_and(|end| end == "heap")).map(|path| words(&path)).collect();
    assert_eq!(counts.len(), FORKS + 1, "a file for the program and each child");
    for words in counts {
        let path: Vec<u8> = words[MODULES_AT + 4..].iter().flat_map(|word| word.to_ne_bytes()).collect();
        let path = PathBuf::from(String::from_utf8_lossy(&path[..words[MODULES_AT + 3] as usize]).into_owned());
        assert_eq!((words[head::MAGIC], path), (MAGIC, program.canonicalize().unwrap()));
        assert!(
            words[head::MODULES] > 2 && words[MODULES_AT + 1] != 0,
            "the program, the library and the C library are found"
        );
        assert!(words[head::ALLOCATIONS] >= 3, "allocations of a child are counted");
    }
}
