//! `tahti settings`: save, compare and restore, on an IOC with fields of many types.

use harness::Folder;
use harness::epics::program;
use harness::ioc::Ioc;
use std::process::Output;

const DATABASE: &str = r#"
record(ao, "S:AMP") { field(VAL, "0.1") field(PREC, "1") field(PINI, "YES") }
record(longout, "S:COUNT") { field(VAL, "-7") field(PINI, "YES") }
record(mbbo, "S:MODE") { field(ZRST, "Idle") field(ONST, "Beam on") field(TWST, "2") field(VAL, "1") field(PINI, "YES") }
record(stringout, "S:NAME") { field(VAL, "a \"quoted\" \\ name") field(PINI, "YES") }
record(lso, "S:TEXT") { field(SIZV, "200") }
record(waveform, "S:CURVE") { field(FTVL, "DOUBLE") field(NELM, "8") }
record(ao, "S:FIXED") { field(VAL, "5") field(ASG, "FIXED") field(PINI, "YES") }
record(ao, "S:LIMITED") { field(DRVH, "10") field(DRVL, "0") field(VAL, "9") field(PINI, "YES") }
"#;
const SECURITY: &str = "ASG(DEFAULT) { RULE(1, WRITE) }\nASG(FIXED) { RULE(1, READ) }\n";
const REQUEST: &str = "# of the station\nS:AMP\nS:COUNT\nS:MODE\nS:NAME\nS:TEXT.VAL$\nS:CURVE\n";

struct Site {
    ioc: Ioc,
    folder: Folder,
}

impl Site {
    fn new() -> Self {
        let ioc = Ioc::start(&[("a.db", DATABASE), ("a.acf", SECURITY)], &["-a", "a.acf", "-d", "a.db"]);
        let folder = Folder::new();
        folder.write("rf.req", REQUEST);
        folder.write("fixed.req", "S:AMP\nS:FIXED\nS:LIMITED\n");
        folder.write("gone.req", "S:AMP\nS:GONE\n");
        Self { ioc, folder }
    }

    fn tool(&self, words: &[&str]) -> Output {
        program(true, words[0], self.ioc.port).args(&words[1..]).output().unwrap()
    }

    fn put(&self, words: &[&str]) {
        let output = self.tool(&[&["caput"], words].concat());
        assert!(output.status.success(), "{output:?}");
    }

    fn get(&self, words: &[&str]) -> String {
        let output = self.tool(&[&["caget", "-t"], words].concat());
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    /// Runs a `tahti settings` command on the site's folder. Returns the exit status and the output.
    fn settings(&self, what: &str, words: &[&str]) -> (i32, String) {
        let folder = self.folder.0.to_str().unwrap();
        let wait: &[&str] = if what == "list" { &[] } else { &["--within", "10s"] };
        let output = self.tool(&[&["settings", what, folder], words, wait].concat());
        (output.status.code().unwrap(), harness::process::text(&output))
    }
}

#[test]
fn fields_of_all_types_are_saved_compared_and_restored() {
    let site = Site::new();
    let long = "a text that is longer than the forty bytes of a string, with = and \u{e9}";
    site.put(&["-S", "S:TEXT.VAL$", long]);
    site.put(&["-a", "S:CURVE", "3", "0.1", "-2e-7", "1e300"]);
    let text = site.get(&["-S", "S:TEXT.VAL$"]);
    let (status, said) = site.settings("save", &["rf", "--note", "before the shift"]);
    assert!(status == 0 && said.contains("6 of 6 channels"), "{said}");
    let (status, said) = site.settings("compare", &["rf"]);
    assert!(status == 0 && said.contains("6 of 6 channels equal"), "{said}");

    site.put(&["S:AMP", "0.10000000000000002"]);
    site.put(&["S:COUNT", "8"]);
    site.put(&["S:MODE", "2"]);
    site.put(&["S:NAME", ""]);
    site.put(&["-S", "S:TEXT.VAL$", "short"]);
    site.put(&["-a", "S:CURVE", "2", "0.1", "0"]);
    let (status, said) = site.settings("compare", &["rf"]);
    assert!(status == 1 && said.contains("0 of 6 channels equal"), "{said}");
    let shown = ["S:AMP", "now 0.10000000000000002", "1 (Beam on)", "now 2 (2)", "[0.1, -2e-7, 1e300]", "now [0.1, 0]"];
    assert!(shown.iter().all(|part| said.contains(part)), "{said}");
    // A difference of one part in 10^16 is within any tolerance.
    let (_, said) = site.settings("compare", &["rf", "--tolerance", "1e-9%"]);
    assert!(said.contains("1 of 6 channels equal") && !said.contains("S:AMP"), "{said}");

    let (status, said) = site.settings("restore", &["rf", "--only", "S:C*"]);
    assert!(status == 0 && said.contains("2 written, 0 equal before, 0 not restored"), "{said}");
    assert_eq!(site.get(&["S:MODE"]), "2", "unselected settings are unchanged");
    let (status, said) = site.settings("restore", &["rf"]);
    assert!(status == 0 && said.contains("4 written, 2 equal before"), "{said}");
    assert_eq!((site.get(&["S:MODE"]), site.get(&["S:COUNT"])), ("Beam on".to_owned(), "-7".to_owned()));
    assert_eq!(site.get(&["-S", "S:TEXT.VAL$"]), text);
    assert_eq!(site.get(&["-f17", "S:AMP"]), "0.10000000000000001");
    let (status, said) = site.settings("compare", &["rf", "--json", "--all"]);
    assert!(status == 0 && said.lines().count() == 6 && said.lines().all(|line| line.contains("\"equal\"")), "{said}");
}

#[test]
fn channels_of_both_protocols_are_saved_compared_and_restored_together() {
    let site = Site::new();
    site.folder.write(
        "both.req",
        "S:AMP\npva://S:COUNT\npva://S:MODE\npva://S:TEXT\npva://S:CURVE\npva://S:LIMITED\npva://S:NAME\n",
    );
    let long = "a text that is longer than the forty bytes of a string";
    site.put(&["-S", "S:TEXT.VAL$", long]);
    site.put(&["-a", "S:CURVE", "3", "0.1", "-2e-7", "1e300"]);
    let (status, said) = site.settings("save", &["both"]);
    assert!(status == 0 && said.contains("7 of 7 channels"), "{said}");
    let (status, said) = site.settings("compare", &["both"]);
    assert!(status == 0 && said.contains("7 of 7 channels equal"), "{said}");

    site.put(&["S:AMP", "0.2"]);
    site.put(&["S:COUNT", "8"]);
    site.put(&["S:MODE", "2"]);
    site.put(&["-S", "S:TEXT.VAL$", "short"]);
    site.put(&["-a", "S:CURVE", "2", "0.1", "0"]);
    let (status, said) = site.settings("compare", &["both"]);
    assert!(status == 1 && said.contains("2 of 7 channels equal"), "{said}");
    let shown = ["pva://S:COUNT", "1 (Beam on)", "now 2 (2)", "[0.1, -2e-7, 1e300]", "now [0.1, 0]", "now short"];
    assert!(shown.iter().all(|part| said.contains(part)), "{said}");
    let (status, said) = site.settings("restore", &["both"]);
    assert!(status == 0 && said.contains("5 written, 2 equal before, 0 not restored"), "{said}");
    assert_eq!((site.get(&["S:MODE"]), site.get(&["S:COUNT"])), ("Beam on".to_owned(), "-7".to_owned()));
    assert_eq!(site.get(&["-S", "S:TEXT.VAL$"]), long);
    assert_eq!(site.get(&["S:CURVE"]).split_whitespace().next(), Some("8"), "all elements are read");
}

#[test]
fn a_write_that_a_pvaccess_server_refuses_and_a_missing_channel_are_reported() {
    let site = Site::new();
    site.folder.write("refused.req", "pva://S:AMP\npva://S:FIXED\n");
    assert_eq!(site.settings("save", &["refused"]).0, 0);
    site.put(&["S:AMP", "7"]);
    let file = std::fs::read_dir(site.folder.0.join("refused")).unwrap().next().unwrap().unwrap().path();
    let text = std::fs::read_to_string(&file).unwrap().replace("S:FIXED 5", "S:FIXED 6");
    std::fs::write(&file, text).unwrap();
    // The server announces the right, so that nothing is written.
    let (status, said) = site.settings("restore", &["refused"]);
    assert!(status == 1 && said.contains("pva://S:FIXED: its server does not let it be written"), "{said}");
    assert!(said.contains("nothing was") && site.get(&["S:AMP"]) == "7", "{said}");
    let (status, said) = site.settings("restore", &["refused", "--partial"]);
    assert!(status == 1 && said.contains("1 written, 0 equal before, 1 not restored"), "{said}");
    assert_eq!(site.get(&["S:AMP"]), "0.1");
    site.folder.write("missing.req", "pva://S:AMP\npva://S:GONE\n");
    let folder = site.folder.0.to_str().unwrap();
    let said = harness::process::text(&site.tool(&["settings", "save", folder, "missing", "--within", "1s"]));
    assert!(said.contains("pva://S:GONE: no server has it") && said.contains("1 of 2 channels"), "{said}");
}

#[test]
fn files_of_autosave_restore_states_by_number_and_saved_files_by_unique_name() {
    let site = Site::new();
    let label = |index: &str, name: &str| site.put(&[&format!("S:MODE.{index}"), name]);
    label("ZRST", "0");
    label("ONST", "2");
    label("TWST", "4");
    site.put(&["S:MODE.VAL", "0"]);
    std::fs::create_dir_all(site.folder.0.join("rf")).unwrap();
    site.folder.write("rf/auto.sav", "# save/restore V5.1\nS:MODE 2\n<END>\n");
    let (status, said) = site.settings("compare", &["rf", "auto.sav"]);
    assert!(status == 1 && said.contains("2 (4)") && said.contains("now 0 (0)"), "{said}");
    let (status, said) = site.settings("restore", &["rf", "auto.sav"]);
    assert!(status == 0 && said.contains("1 written"), "{said}");
    assert_eq!(site.get(&["-n", "S:MODE"]), "2", "the state with that number, not the one with that name");

    assert_eq!(site.settings("save", &["rf"]).0, 0);
    let mut files = std::fs::read_dir(site.folder.0.join("rf")).unwrap().map(|entry| entry.unwrap().path());
    let ours = files.find(|file| !file.ends_with("auto.sav")).unwrap();
    let text = std::fs::read_to_string(ours).unwrap();
    assert!(text.contains("\nS:MODE 2\n") && text.contains("\n#state S:MODE \"4\"\n"), "{text}");
    // The states are renumbered: the state's name decides.
    label("ONST", "4");
    label("TWST", "2");
    let (status, said) = site.settings("restore", &["rf", "--only", "S:MODE"]);
    assert!(status == 0 && said.contains("1 written"), "{said}");
    assert_eq!(site.get(&["-n", "S:MODE"]), "1");
    // Two states with the same name: tahti does not guess.
    label("ZRST", "4");
    let (status, said) = site.settings("restore", &["rf", "--only", "S:MODE"]);
    assert!(status == 1 && said.contains("is \"2 (4)\"; expected one of its states: 0 (4), 1 (4), 2 (2)"), "{said}");
}

#[test]
fn nothing_is_written_if_one_channel_is_not_writable_unless_partial_is_set() {
    let site = Site::new();
    assert_eq!(site.settings("save", &["fixed"]).0, 0);
    site.put(&["S:AMP", "7"]);
    let file = std::fs::read_dir(site.folder.0.join("fixed")).unwrap().next().unwrap().unwrap().path();
    let text = std::fs::read_to_string(&file)
        .unwrap()
        .replace("S:FIXED 5", "S:FIXED 6")
        .replace("S:LIMITED 9", "S:LIMITED 90");
    std::fs::write(&file, text).unwrap();
    let (status, said) = site.settings("restore", &["fixed"]);
    assert!(status == 1 && said.contains("S:FIXED: its server does not let it be written"), "{said}");
    assert!(said.contains("1 of 3 channels cannot be written: nothing was"), "{said}");
    assert_eq!(site.get(&["S:AMP"]), "7");
    let (status, said) = site.settings("restore", &["fixed", "--partial"]);
    assert!(status == 1 && said.contains("1 written, 0 equal before, 2 not restored"), "{said}");
    assert!(said.contains("left out: its server does not let it be written"), "{said}");
    assert!(said.contains("written, but it holds 10"), "{said}");
    assert_eq!(site.get(&["S:AMP"]), "0.1");
}

#[test]
fn unreadable_channels_are_reported_and_marked_in_the_saved_file() {
    let site = Site::new();
    let folder = site.folder.0.to_str().unwrap();
    let save = |set: &str| site.tool(&["settings", "save", folder, set, "--within", "1s"]);
    let output = save("gone");
    let said = harness::process::text(&output);
    assert!(output.status.code() == Some(1) && said.contains("S:GONE: no server has it"), "{said}");
    assert!(said.contains("1 of 2 channels"), "{said}");
    let (_, said) = site.settings("list", &["gone"]);
    assert!(said.contains("2 channels, 1 not read, by "), "{said}");
    let compared = site.tool(&["settings", "compare", folder, "gone", "--within", "1s"]);
    let said = harness::process::text(&compared);
    assert!(compared.status.code() == Some(1) && said.contains("not read when saved, nor now"), "{said}");
    site.folder.write("none.req", "S:NO\n");
    let output = save("none");
    assert!(harness::process::text(&output).contains("nothing was saved"), "{output:?}");
    assert!(!site.folder.0.join("none").exists());
    let (status, said) = site.settings("compare", &["magnets"]);
    assert!(status == 1 && said.contains("there is no set \"magnets\"; it has fixed, gone, none, rf"), "{said}");
    let (status, said) = site.settings("list", &[]);
    assert!(status == 0 && said.contains("rf: 6 channels, saved 0 times"), "{said}");
}
