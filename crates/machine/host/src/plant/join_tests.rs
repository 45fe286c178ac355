//! Plants of several files, with variables and profiles.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Files in memory below `/p`, and an environment.
#[derive(Default)]
struct Invented {
    files: BTreeMap<PathBuf, String>,
    environment: BTreeMap<String, String>,
}

impl Files for Invented {
    fn find(&mut self, folder: &Path, pattern: &str) -> Result<Vec<PathBuf>, Unreadable> {
        let pattern = folder.join(pattern);
        let fits = |file: &&PathBuf| base::glob(&pattern.to_string_lossy(), &file.to_string_lossy());
        let found: Vec<PathBuf> = self.files.keys().filter(fits).cloned().collect();
        let is_exact = !pattern.to_string_lossy().contains('*');
        if found.is_empty() && is_exact { Err(Unreadable::NoFile) } else { Ok(found) }
    }

    fn text(&mut self, file: &Path) -> Result<String, Unreadable> {
        self.files.get(file).cloned().ok_or(Unreadable::NoFile)
    }

    fn variable(&self, name: &str) -> Result<Option<String>, Unreadable> {
        Ok(self.environment.get(name).cloned())
    }
}

const PLANT: &str = "[plant]\nname = \"p\"\n";

fn process(name: &str, more: &str) -> String {
    format!("[[process]]\nname = \"{name}\"\ncommand = \"/bin/true\"\n{more}\n")
}

/// Joins `/p/plant.toml` with these files.
fn joined(main: &str, files: &[(&str, &str)], environment: &[(&str, &str)]) -> Joined {
    let owned = |pair: &(&str, &str)| (pair.0.to_owned(), pair.1.to_owned());
    let mut files = Invented {
        files: files.iter().map(|(name, text)| (Path::new("/p").join(name), (*text).to_owned())).collect(),
        environment: environment.iter().map(owned).collect(),
    };
    join(Path::new("/p/plant.toml"), main.to_owned(), &mut files)
}

/// Each finding as `FILE:LINE message`.
fn findings(joined: &Joined, profiles: &[&str]) -> Vec<String> {
    let found = check_joined(joined, &Profiles::of(profiles.iter().copied()), &Anywhere).found;
    let shown =
        |one: &Diagnostic| format!("{}:{} {}", one.file.as_deref().unwrap_or("plant.toml"), one.line, one.message);
    found.iter().map(shown).collect()
}

/// The names of a sound plant's processes.
fn names(joined: &Joined, profiles: &[&str]) -> Vec<String> {
    let checked = check_joined(joined, &Profiles::of(profiles.iter().copied()), &Anywhere);
    let plant = checked.plant.unwrap_or_else(|| panic!("{}", joined.render_all(&checked.found)));
    plant.processes.into_iter().map(|process| process.name).collect()
}

#[test]
fn a_plant_has_the_processes_of_all_files_that_it_includes() {
    let main = format!("include = [\"common.toml\", \"parts/*.toml\"] # all\n{PLANT}{}", process("main", ""));
    let common = format!("include = [\"base.toml\"]\n{}", process("common", ""));
    let files = [
        ("common.toml", common.as_str()),
        ("base.toml", &process("base", "")),
        ("parts/b.toml", &process("b", "after = [\"a\"]")),
        ("parts/a.toml", &process("a", "")),
    ];
    let joined = joined(&main, &files, &[]);
    assert_eq!(names(&joined, &[]), ["main", "common", "base", "a", "b"]);
    // Promises name the file of their line.
    let plant = check_joined(&joined, &Profiles::default(), &Anywhere).plant.unwrap();
    assert_eq!((plant.places.line("main"), plant.places.file("main")), (Some(4), None));
    assert_eq!((plant.places.line("b.after"), plant.places.file("b.after")), (Some(4), Some("parts/b.toml")));
}

#[test]
fn a_finding_in_an_included_file_has_the_name_and_line_of_that_file() {
    let main = format!("include = [\"a.toml\"]\n{PLANT}");
    let wrong = process("a", "clas = \"fifo:1\"");
    let joined = joined(&main, &[("a.toml", &wrong)], &[]);
    assert_eq!(findings(&joined, &[]), ["/p/a.toml:4 unknown key `clas` in process \"a\""]);
    let found = check_joined(&joined, &Profiles::default(), &Anywhere).found;
    let shown = joined.render_all(&found);
    assert!(shown.contains("--> /p/a.toml:4:1\n  |\n4 | clas = \"fifo:1\"\n  | ^^^^\n"), "{shown}");
    assert!(shown.ends_with("/p/plant.toml: 1 error\n"), "{shown}");
}

#[test]
fn files_that_include_each_other_are_named() {
    let main = format!("include = [\"a.toml\"]\n{PLANT}{}", process("x", ""));
    let found = findings(
        &joined(&main, &[("a.toml", "include = [\"b.toml\"]\n"), ("b.toml", "include = [\"a.toml\"]\n")], &[]),
        &[],
    );
    assert_eq!(found, ["/p/b.toml:1 files include each other: /p/a.toml includes /p/b.toml includes /p/a.toml"]);
}

#[test]
fn a_file_that_two_files_include_is_read_once() {
    let main = format!("include = [\"a.toml\", \"b.toml\"]\n{PLANT}");
    let include = "include = [\"c.toml\"]\n";
    let files = [("a.toml", include), ("b.toml", include), ("c.toml", &process("c", ""))];
    assert_eq!(names(&joined(&main, &files, &[]), &[]), ["c"]);
}

#[test]
fn includes_have_a_bounded_depth_and_number() {
    let main = format!("include = [\"1.toml\"]\n{PLANT}{}", process("x", ""));
    let chain: Vec<(String, String)> =
        (1..20).map(|nth| (format!("{nth}.toml"), format!("include = [\"{}.toml\"]\n", nth + 1))).collect();
    let chain: Vec<(&str, &str)> = chain.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let found = findings(&joined(&main, &chain, &[]), &[]);
    assert_eq!(found, ["/p/8.toml:1 /p/9.toml is included through 8 files"]);

    let many: Vec<(String, String)> = (0..100).map(|nth| (format!("m{nth}.toml"), String::new())).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let main = format!("include = [\"m*.toml\"]\n{PLANT}{}", process("x", ""));
    assert_eq!(findings(&joined(&main, &many, &[]), &[]), ["plant.toml:1 the plant has more than 64 files"]);

    let large = "#".repeat(TEXT_BYTES_MAX);
    let main = format!("include = [\"a.toml\"]\n{PLANT}{}", process("x", ""));
    let found = findings(&joined(&main, &[("a.toml", &large)], &[]), &[]);
    assert_eq!(found, ["plant.toml:1 with /p/a.toml the plant has more than 1048576 bytes"]);
}

#[test]
fn a_missing_file_is_named_at_its_include_and_hides_no_other_error() {
    let main = format!("include = [\"a.toml\"]\n{PLANT}{}", process("x", "after = [\"in-a\"]\nclas = 1"));
    let found = findings(&joined(&main, &[], &[]), &[]);
    assert_eq!(
        found,
        [
            "plant.toml:1 `include` names \"a.toml\", which cannot be read: it is no regular file",
            "plant.toml:8 unknown key `clas` in process \"x\""
        ],
        "that in-a is unknown is a consequence"
    );
    let wrong = format!("include = \"a.toml\"\n{PLANT}{}", process("x", ""));
    assert_eq!(findings(&joined(&wrong, &[], &[]), &[]), ["plant.toml:1 `include` is no list of files"]);
}

#[test]
fn a_name_or_table_in_two_files_is_reported_with_both_places() {
    let main = format!("include = [\"a.toml\"]\n{PLANT}{}", process("x", ""));
    let found = findings(&joined(&main, &[("a.toml", &process("x", ""))], &[]), &[]);
    assert_eq!(found, ["/p/a.toml:2 a second process \"x\"; the first one is at line 5"]);

    let shield = "[shield]\ncpus = \"1\"\n";
    let both = format!("{main}{shield}");
    let found = findings(&joined(&both, &[("a.toml", &format!("\n{shield}"))], &[]), &[]);
    assert_eq!(found, ["/p/a.toml:2 [shield] is already in /p/plant.toml:8"]);
    let main = format!("include = [\"a.toml\", \"b.toml\"]\n{PLANT}{}", process("x", ""));
    let found = findings(&joined(&main, &[("a.toml", shield), ("b.toml", &format!("\n{shield}"))], &[]), &[]);
    assert_eq!(found, ["/p/b.toml:2 [shield] is already in /p/a.toml:1"]);
}

#[test]
fn a_table_is_not_continued_from_one_file_to_the_next() {
    let main = format!("include = [\"a.toml\"]\n{PLANT}{}", process("x", ""));
    let found = findings(&joined(&main, &[("a.toml", "[process.heartbeat]\nwithin = \"1s\"\n")], &[]), &[]);
    assert_eq!(found[0], "/p/a.toml:1 a part of [[process]] in a file that has no [[process]] above it");
    let found = findings(&joined(&main, &[("a.toml", "restart = { limit = 1 }\n")], &[]), &[]);
    assert_eq!(found[0], "/p/a.toml:1 `restart` before the first table of an included file");
}

#[test]
fn a_syntax_error_in_an_included_file_is_found_in_that_file_only() {
    let main = format!("include = [\"a.toml\"]\n{PLANT}{}", process("x", ""));
    let found =
        findings(&joined(&main, &[("a.toml", "[[process]]\nname = \"a\ncommand = \"${X\"\n[variables]\n")], &[]), &[]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("/p/a.toml:2 "), "{found:?}");
}

#[test]
fn variables_come_from_the_environment_then_from_the_first_file_that_has_them() {
    let main = format!(
        "include = [\"a.toml\"]\n[variables]\nA = \"main\"\nB = \"main\"\nN = 7\n{PLANT}{}",
        process("x", "env = { V = \"<${A} ${B} ${C} ${N} ${EMPTY:-e} ${NONE:-d:-}>\", W = '''${A}\n\"''' }")
    );
    let files = [("a.toml", "[variables]\nA = \"a\"\nC = \"a\"\n")];
    let joined = joined(&main, &files, &[("A", "en\"v\\"), ("EMPTY", "")]);
    let plant = check_joined(&joined, &Profiles::default(), &Anywhere).plant.unwrap();
    assert_eq!(plant.processes[0].env["V"], "<en\"v\\ main a 7 e d:->");
    assert_eq!(plant.processes[0].env["W"], "en\"v\\\n\"");
}

#[test]
fn a_file_without_a_table_of_variables_keeps_its_dollars() {
    let shell = process("x", "on_fault = [\"/bin/sh\", \"-c\", \"echo ${HOME} $$ ${1:-a}\"]");
    let on_fault = |joined: &Joined| {
        let plant = check_joined(joined, &Profiles::default(), &Anywhere).plant;
        plant.unwrap().process("x").unwrap().on_fault.clone().unwrap()[2].clone()
    };
    let environment = [("HOME", "/root")];
    assert_eq!(on_fault(&joined(&format!("{PLANT}{shell}"), &[], &environment)), "echo ${HOME} $$ ${1:-a}");
    // Also when another file of the plant has variables.
    let main = format!("include = [\"a.toml\"]\n[variables]\n{PLANT}");
    assert_eq!(on_fault(&joined(&main, &[("a.toml", &shell)], &environment)), "echo ${HOME} $$ ${1:-a}");
    let escaped = process("x", "on_fault = [\"/bin/sh\", \"-c\", \"echo $${HOME} $$ $1 ${HOME}\"]");
    let main = format!("[variables]\n{PLANT}{escaped}");
    assert_eq!(on_fault(&joined(&main, &[], &environment)), "echo ${HOME} $$ $1 /root");
}

#[test]
fn a_variable_without_value_is_an_error_with_place_and_remedy() {
    let text = process(
        "x",
        "dir = \"/a/${NO}\"\nuser = \"${1%%.*}\"\npartition = \"${A\"\nclass = \"${B:-${C}}\"\nenv = { A = \"a\" }",
    );
    let main = format!("[variables]\n{PLANT}{text}");
    let joined = joined(&main, &[], &[]);
    let found = check_joined(&joined, &Profiles::default(), &Anywhere).found;
    let shown: Vec<(usize, usize, &str)> =
        found.iter().map(|one| (one.line, one.column, one.message.as_str())).collect();
    assert_eq!(
        shown,
        [
            (7, 11, "variable NO has no value"),
            (8, 9, "`${1%%.*}` is no variable"),
            (9, 14, "`${` without `}`"),
            (10, 10, "`${B:-${C}` is no variable"),
        ]
    );
    assert!(found[0].remedy.contains("set NO in the environment or in [variables]"), "{}", found[0].remedy);
    assert!(found[1].remedy.contains("`$${1%%.*}`"), "{}", found[1].remedy);
}

#[test]
fn a_table_of_variables_has_names_and_values_without_references() {
    let main = format!(
        "[variables]\n\"a-b\" = \"1\"\nL = [1]\nR = \"${{A}}\"\nE = \"$${{A}}\"\n{PLANT}{}",
        process("x", "dir = \"${E}\"")
    );
    let text = joined(&main, &[], &[]);
    let found: Vec<(usize, String)> = check_joined(&text, &Profiles::default(), &Anywhere)
        .found
        .into_iter()
        .map(|one| (one.line, one.message))
        .collect();
    assert_eq!(found.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [2, 3, 4], "{found:?}");
    assert!(text.text().contains("dir = \"${A}\""), "{}", text.text());
    let main = format!("variables = {{ A = \"1\" }}\n{PLANT}{}", process("x", ""));
    let found = findings(&joined(&main, &[], &[]), &[]);
    assert!(found.iter().any(|one| one.contains("is no [variables] table")), "{found:?}");
}

#[test]
fn members_with_profiles_are_part_of_the_plant_only_on_request() {
    let main = format!(
        "{PLANT}{}{}{}[archive]\nname = \"archive\"\nfolder = \"a\"\nprofiles = [\"log\"]\n[[signal]]\nnames = [\"A\"]\n[[frame]]\nname = \"f\"\nminors = 1\nperiod = \"1ms\"\nprofiles = [\"debug\"]\n[[frame.activity]]\nname = \"f1\"\nbudget = \"1us\"\n",
        process("always", ""),
        process("probe", "profiles = [\"debug\", \"lab\"]\nafter = [\"always\"]"),
        process("empty", "profiles = []"),
    );
    let joined = joined(&main, &[], &[]);
    assert_eq!(names(&joined, &[]), ["always", "empty"]);
    assert_eq!(names(&joined, &["lab"]), ["always", "probe", "empty"]);
    assert_eq!(names(&joined, &["debug"]), ["f", "always", "probe", "empty"]);
    assert_eq!(names(&joined, &["*"]), ["f", "always", "probe", "empty", "archive"]);
    let checked = check_joined(&joined, &Profiles::of(["logg", "lab"]), &Anywhere);
    assert_eq!(checked.inactive.unknown, ["logg"]);
    assert_eq!(checked.inactive.known.iter().map(String::as_str).collect::<Vec<_>>(), ["debug", "lab", "log"]);
}

#[test]
fn a_member_that_waits_for_one_of_an_inactive_profile_is_an_error_with_a_remedy() {
    let main = format!("{PLANT}{}{}", process("a", "profiles = [\"debug\"]"), process("b", "after = [\"a\"]"));
    let joined = joined(&main, &[], &[]);
    let found = check_joined(&joined, &Profiles::default(), &Anywhere).found;
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].message, "`after` of \"b\" names \"a\", which is only in profile debug");
    assert_eq!(found[0].remedy, "use `--profile debug`, or give \"b\" the same `profiles = [\"debug\"]`");
    assert!(findings(&joined, &["debug"]).is_empty());
}

#[test]
fn a_plant_whose_members_are_all_inactive_names_a_profile() {
    let main = format!("{PLANT}{}", process("a", "profiles = [\"debug\"]"));
    let found = check_joined(&joined(&main, &[], &[]), &Profiles::default(), &Anywhere).found;
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].remedy.starts_with("use `--profile debug`"), "{}", found[0].remedy);
    let wrong = format!("{PLANT}{}{}", process("a", "profiles = \"debug\""), process("b", "profiles = [\"a b\"]"));
    let found = findings(&joined(&wrong, &[], &[]), &["*"]);
    assert_eq!(
        found,
        [
            "plant.toml:6 `profiles` in process \"a\" cannot be a text",
            "plant.toml:10 a profile cannot be called \"a b\""
        ]
    );
    let twice = format!("{PLANT}{}{}", process("a", "profiles = [\"debug\"]"), process("a", ""));
    assert_eq!(findings(&joined(&twice, &[], &[]), &[]), ["plant.toml:8 a second process \"a\", in another profile"]);
}

/// Words of plants of several files, so that random texts get past the first token.
fn plantish() -> impl Strategy<Value = String> {
    let words = vec![
        "include",
        "=",
        "[\"a.toml\"]",
        "[",
        "]",
        "[[process]]",
        "[variables]",
        "[plant]",
        "name",
        "\"p\"",
        "\n",
        "\n",
        "\"${A}\"",
        "'''$${A}\n${A}'''",
        "\"${\"",
        "A",
        "profiles",
        "[\"d\"]",
        "{",
        "}",
        ",",
        "variables",
        "é",
        "\"",
        "[process.a]",
        "command",
        "a.b",
    ];
    proptest::collection::vec(proptest::sample::select(words), 0..50).prop_map(|words| words.join(" "))
}

proptest! {
    #[test]
    fn no_texts_panic_and_every_finding_can_be_shown(main in prop_oneof![plantish(), any::<String>()], part in plantish()) {
        let main = format!("include = [\"a.toml\"]\n{main}");
        let joined = joined(&main, &[("a.toml", &part)], &[("A", "\"\\\n")]);
        for profiles in [Profiles::default(), Profiles::all()] {
            let checked = check_joined(&joined, &profiles, &Anywhere);
            let _ = joined.render_all(&checked.found);
            prop_assert!(checked.plant.is_some() || !checked.found.is_empty());
        }
    }
}
