//! `tahti bench compare` and `tahti report`, on output of `tahti bench` and on invalid input.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

fn tahti(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tahti")).args(words).output().unwrap()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A folder that is removed with the test, and a measurement in it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = Self(std::env::temp_dir().join(format!("tahti-{name}-{}", std::process::id())));
        fs::create_dir_all(&folder.0).unwrap();
        let output = tahti(&["bench", "clock", "--rounds", "8", "--json"]);
        assert!(output.status.success(), "{}", text(&output));
        fs::write(folder.0.join("now.json"), output.stdout).unwrap();
        folder
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_string_lossy().into_owned()
    }

    /// The same measurement with every sample ten times as long.
    fn slower(&self) -> String {
        let mut report: serde_json::Value = serde_json::from_slice(&fs::read(self.path("now.json")).unwrap()).unwrap();
        let ours = &mut report["tables"][0]["rows"][0]["ours"];
        ours["value"] = (ours["value"].as_f64().unwrap() * 10.0).into();
        for sample in ours["samples"].as_array_mut().unwrap() {
            *sample = (sample.as_f64().unwrap() * 10.0).into();
        }
        fs::write(self.path("slow.json"), report.to_string()).unwrap();
        self.path("slow.json")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_gate_fails_if_a_figure_got_worse_and_names_it() {
    let folder = Folder::new("gate");
    let (now, slow) = (folder.path("now.json"), folder.slower());
    let same = tahti(&["bench", "compare", &now, &now]);
    assert!(same.status.success() && text(&same).starts_with("0 worse, "), "{}", text(&same));
    let worse = tahti(&["bench", "compare", &now, &slow]);
    assert_eq!(worse.status.code(), Some(1), "{}", text(&worse));
    assert!(text(&worse).contains("\nWORSE: clock: "), "{}", text(&worse));
    let better = tahti(&["bench", "compare", &slow, &now]);
    assert!(better.status.success() && text(&better).contains("\nbetter: clock: "), "{}", text(&better));
}

#[test]
fn two_runs_make_one_page_or_one_text() {
    let folder = Folder::new("page");
    let (now, slow, page, markdown) =
        (folder.path("now.json"), folder.slower(), folder.path("p.html"), folder.path("p.md"));
    let output = tahti(&["report", &now, &slow, "-o", &page]);
    assert!(output.status.success(), "{}", text(&output));
    let shown = fs::read_to_string(&page).unwrap();
    assert!(shown.starts_with("<!doctype html>") && shown.contains("From now to slow") && shown.contains("1 worse"));
    let output = tahti(&["report", &now, "-o", &markdown]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(fs::read_to_string(&markdown).unwrap().contains("## Targets: now"));
}

#[test]
fn a_malformed_report_is_refused_with_the_reason() {
    let folder = Folder::new("foreign");
    let whole = fs::read(folder.path("now.json")).unwrap();
    for (name, bytes, why) in [
        ("cut.json", &whole[..whole.len() / 2], "the file is incomplete"),
        ("other.json", b"{\"cases\": []}", "expected a report in format"),
        ("words.json", b"hello", "expected JSON from"),
        ("bytes.json", b"\xff\xfe\x00", "valid UTF-8"),
    ] {
        fs::write(folder.path(name), bytes).unwrap();
        let output = tahti(&["report", &folder.path(name)]);
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output).contains(name) && text(&output).contains(why), "{}", text(&output));
    }
    let output = tahti(&["bench", "compare", &folder.path("now.json"), &folder.path("none.json")]);
    assert!(!output.status.success() && text(&output).contains("none.json"), "{}", text(&output));
}

#[test]
fn a_profile_is_drawn_below_the_measurements() {
    let folder = Folder::new("flame");
    let (stacks, page) = (folder.path("loop.folded"), folder.path("page.html"));
    fs::write(&stacks, "loop;main;work 3\nloop;main 1\n").unwrap();
    for words in [&["report", &folder.path("now.json"), &stacks, "-o", &page][..], &["report", &stacks, "-o", &page]] {
        let output = tahti(words);
        assert!(output.status.success(), "{}", text(&output));
        let page = fs::read_to_string(&page).unwrap();
        assert!(page.contains("Where the time goes: loop</h2>") && page.contains("<title>work: 3 samples, 75.00 %"));
    }
    fs::write(&stacks, "nothing\n").unwrap();
    assert!(text(&tahti(&["report", &stacks])).contains("no folded stacks"));
}

#[test]
fn coverage_of_programs_is_drawn_with_what_was_not_executed() {
    let folder = std::env::temp_dir().join(format!("tahti-coverage-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (good, bad) = (folder.join("loop.info"), folder.join("bad.lcov"));
    fs::write(&good, "SF:/src/loop.rs\nFN:1,_ZN4loop5neverE\nFNDA:0,_ZN4loop5neverE\nDA:1,0\nDA:2,3\nend_of_record\n")
        .unwrap();
    fs::write(&bad, "SF:/src/loop.rs\nDA:one,0\n").unwrap();
    let page = tahti(&["report", &good.to_string_lossy(), "--markdown"]);
    assert!(page.status.success(), "{}", text(&page));
    for part in ["1 of 2 lines in 1 files were executed", r"\|.#\|", "loop::never"] {
        assert!(text(&page).contains(part), "{part}: {}", text(&page));
    }
    let refused = tahti(&["report", &bad.to_string_lossy()]);
    assert!(!refused.status.success());
    assert!(
        text(&refused).contains("bad.lcov: line 2: found \"DA:one,0\", expected DA:LINE,EXECUTIONS"),
        "{}",
        text(&refused)
    );
    fs::remove_dir_all(&folder).unwrap();
}
