//! The table of verbs: its page in the documentation, and the how-to that adds a row.

use base::verb::{Row, ServedBy};
use msg::Verb;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// The rows in the form of the documentation.
fn table() -> String {
    let mut out = "| verb | meaning | answered by | changes equipment | may be repeated | in a batch |\n".to_owned();
    out.push_str("|---|---|---|---|---|---|\n");
    let yes = |yes| if yes { "yes" } else { "" };
    for verb in Verb::ALL {
        let Row { word, served_by, idempotent, batchable, .. } = *verb.row();
        let by = match served_by {
            ServedBy::Device => "manager, by a row of its tables",
            ServedBy::Manager => "manager",
            ServedBy::ManagerOrServer => "manager; the server if none serves the object",
            ServedBy::Server => "server",
        };
        let (meaning, writes) = (verb.meaning(), yes(verb.writes()));
        let line = format!("| `{word}` | {meaning} | {by} | {writes} | {} | {} |", yes(idempotent), yes(batchable));
        writeln!(out, "{}", line.replace("|  |", "| |").replace("|  |", "| |")).unwrap();
    }
    out
}

#[test]
fn the_page_on_messages_lists_every_verb() {
    let page = root().join("docs/reference/messages.md");
    let text = fs::read_to_string(&page).unwrap();
    let (before, rest) = text.split_once("<!-- verbs -->\n").unwrap();
    let (_, after) = rest.split_once("<!-- end of verbs -->").unwrap();
    let expected = format!("{before}<!-- verbs -->\n{}<!-- end of verbs -->{after}", table());
    if std::env::var_os("TAHTI_BLESS").is_some() {
        fs::write(&page, &expected).unwrap();
    }
    assert!(fs::read_to_string(&page).unwrap() == expected, "run TAHTI_BLESS=1 cargo test -p msg --test verbs");
}

/// The code between the next ```` ```rust ```` and its end.
fn code<'t>(text: &mut &'t str) -> &'t str {
    let (_, rest) = text.split_once("```rust\n").expect("a block of Rust");
    let (code, rest) = rest.split_once("```").expect("the block's end");
    *text = rest;
    code
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Builds a separate workspace from the present `base` and `msg` with the added row.
#[test]
fn the_how_to_for_adding_a_verb_works() {
    let (root, there) = (root(), Path::new(env!("CARGO_TARGET_TMPDIR")).join("add-a-verb"));
    let text = fs::read_to_string(root.join("docs/how-to/add-a-verb.md")).unwrap();
    let mut rest = text.as_str();
    let (row, program) = (code(&mut rest), code(&mut rest));
    for inside in ["crates/ground/base", "crates/messages/msg"] {
        drop(fs::remove_dir_all(there.join(inside)));
        copy(&root.join(inside).join("src"), &there.join(inside).join("src"));
        fs::copy(root.join(inside).join("Cargo.toml"), there.join(inside).join("Cargo.toml")).unwrap();
    }
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let (_, shared) = manifest.split_once("[workspace.package]").unwrap();
    let members = "[workspace]\nresolver = \"3\"\nmembers = [\"crates/*/*\", \"added\"]\n[workspace.package]";
    fs::write(there.join("Cargo.toml"), format!("{members}{shared}")).unwrap();
    fs::copy(root.join("Cargo.lock"), there.join("Cargo.lock")).unwrap();
    fs::create_dir_all(there.join("added/src")).unwrap();
    let package = "[package]\nname = \"added\"\nedition.workspace = true\n[dependencies]\nmsg.workspace = true\n";
    fs::write(there.join("added/Cargo.toml"), package).unwrap();
    fs::write(there.join("added/src/main.rs"), format!("fn main() {{\n{program}}}\n")).unwrap();
    let table = there.join("crates/ground/base/src/verb.rs");
    let before = fs::read_to_string(&table).unwrap();
    let (rows, after) = before.split_once("\n}\n\nimpl Verb {\n    /// Its row.").expect("the end of the table");
    fs::write(&table, format!("{rows}\n{row}}}\n\nimpl Verb {{\n    /// Its row.{after}")).unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["run", "--quiet", "--offline", "-p", "added"]).current_dir(&there);
    let ran = cargo.env("CARGO_TARGET_DIR", there.join("target")).env_remove("RUSTFLAGS").output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}
