//! New plants: the files that `tahti init` writes, each template from its creation to its verdict, and the tutorials as
//! printed.

use harness::port::free_port;
use harness::process::{finish, text};
use harness::{Folder, eventually, fresh};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The user id for these tests if they are started by root.
const UNPRIVILEGED: u32 = 65_534;

/// An unprivileged user with a separate folder, run folder and port.
struct User {
    folder: Folder,
    port: u16,
}

impl User {
    fn new() -> Self {
        let folder = Folder::new();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&folder.0, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).unwrap();
        }
        Self { folder, port: free_port() }
    }

    /// Runs a line in a shell.
    fn run(&self, line: &str) -> Output {
        let tahti = Path::new(env!("CARGO_BIN_EXE_tahti"));
        // A checkout that other users cannot enter is tested as root.
        let is_open = |folder: &Path| folder.metadata().is_ok_and(|folder| folder.permissions().mode() & 1 == 1);
        let changes_user = rustix::process::geteuid().is_root() && tahti.ancestors().all(is_open);
        let mut command = if changes_user {
            let mut command = Command::new("setpriv");
            let id = |what: &str| format!("--{what}={UNPRIVILEGED}");
            command.args([id("reuid"), id("regid")]).args(["--clear-groups", "sh"]);
            command
        } else {
            Command::new("sh")
        };
        let path = format!("{}:{}", tahti.parent().unwrap().display(), std::env::var("PATH").unwrap_or_default());
        let repeater = (self.port + 1).to_string();
        command.args(["-c", line]).current_dir(&self.folder.0).stdin(Stdio::null());
        command.env("PATH", path).env("HOME", &self.folder.0).env("TAHTI_RUN", self.folder.0.join("run"));
        command.env("TAHTI_SPARE", "1+").env_remove("TAHTI_NO_DASHBOARD").env_remove("TAHTI_MESSAGES");
        command.env("PKG_CONFIG_PATH", &self.folder.0);
        command.env("EPICS_CA_SERVER_PORT", self.port.to_string()).env("EPICS_CA_REPEATER_PORT", repeater);
        for list in ["EPICS_CA_ADDR_LIST", "EPICS_CAS_BEACON_ADDR_LIST"] {
            command.env(list, "127.0.0.1");
        }
        command.env("EPICS_CA_AUTO_ADDR_LIST", "NO").env("EPICS_CAS_AUTO_BEACON_ADDR_LIST", "NO");
        finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Runs a line that must succeed and returns its output.
    fn ok(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(output.status.success(), "{line}: {}", text(&output));
        text(&output)
    }

    /// Whether a line succeeds with this text in its output.
    fn shows(&self, line: &str, expected: &str) -> bool {
        let output = self.run(line);
        output.status.success() && text(&output).contains(expected)
    }
}

impl Drop for User {
    fn drop(&mut self) {
        // After a failed test the plant may still be up; otherwise this does nothing.
        self.run("tahti down");
    }
}

/// Creates a plant from a template, checks and starts it, and runs `more` with its name. The verdict must be good.
fn is_worth_seeing(template: &str, channel: &str, archived: &[&str], more: impl Fn(&User, &str)) {
    let (user, name) = (User::new(), fresh("init"));
    user.ok(&format!("tahti init plant --name {name} --template {template}"));
    let checked = user.ok("tahti check plant");
    assert!(checked.contains("plant.toml: no error"), "{checked}");
    let up = user.ok("tahti up plant --detach");
    assert!(up.contains(&format!("plant {name} is up")) && up.contains("dashboard: http://"), "{up}");
    eventually("the record has a value", || {
        let output = user.run(&format!("tahti caget -t -w 5 {name}:{channel}"));
        output.status.success() && text(&output).trim().parse::<f64>().is_ok()
    });
    eventually("the channel has an alarm, and it is OK", || severity(&user, &name, channel) == "OK");
    let archive = || text(&user.run("tahti archive list plant/archive"));
    let is_archived = |signal: &&str| archive().contains(&signal.replace("NAME", &name));
    eventually("every signal is archived", || archived.iter().all(is_archived));
    let top = user.ok("tahti top -n 1");
    assert!(top.contains("running") && top.contains("dashboard"), "{top}");
    more(&user, &name);
    ends_well(&user.run("tahti down"));
}

/// Checks that nothing failed: the verdict is good, or the machine lacked a feature or was late, which exit status 4
/// reports.
fn ends_well(output: &Output) {
    let said = text(output);
    let verdict = said.lines().find(|line| line.starts_with("up for ")).unwrap_or_else(|| panic!("{said}"));
    assert!(verdict.contains(": good") || verdict.contains(": degraded"), "{said}");
    assert!(matches!(output.status.code(), Some(0 | 4)), "{said}");
}

/// The severity of an alarm, empty if there is none or its channel is not connected.
fn severity(user: &User, name: &str, channel: &str) -> String {
    let output = user.run(&format!("tahti alarm list --all --json --server {name}"));
    let list: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let rows = list["rows"].as_array().cloned().unwrap_or_default();
    let row = rows.into_iter().find(|row| row["channel"] == format!("{name}:{channel}") && row["connected"] == true);
    row.and_then(|row| Some(row["severity"].as_str()?.to_owned())).unwrap_or_default()
}

/// Checks that the loop runs and that `tahti ps` has its wake-up latency.
fn loop_has_latency(user: &User, name: &str) {
    eventually("the latency of 100 cycles", || {
        let status: Value = serde_json::from_str(&user.ok(&format!("tahti ps {name} --json"))).unwrap();
        let processes = status[0]["processes"].as_array().unwrap();
        let page = &processes.iter().find(|process| process["name"] == "loop").unwrap()["loop"];
        page["cycles"].as_u64().is_some_and(|cycles| cycles > 100) && !page["wake"]["p50"].is_null()
    });
}

#[test]
fn the_loop_template_shows_latency_a_signal_an_alarm_and_an_archive() {
    is_worth_seeing("loop", "Amplitude", &["NAME/amplitude", "loops/NAME/loop/p99"], loop_has_latency);
}

#[test]
fn the_ioc_template_has_a_heater_whose_alarm_a_user_can_raise_and_acknowledge() {
    is_worth_seeing("ioc", "Temperature", &["NAME:Temperature", "loops/NAME/loop/p99"], |user, name| {
        loop_has_latency(user, name);
        user.ok(&format!("tahti caput -w 30 {name}:Heater 80"));
        eventually("an alarm", || severity(user, name, "Temperature") == "MAJOR");
        user.ok(&format!("tahti alarm ack {name}:Temperature --server {name}"));
        assert_eq!(severity(user, name, "Temperature"), "MAJOR_ACK");
    });
}

#[test]
fn the_equipment_template_takes_commands_by_messages_and_by_records() {
    is_worth_seeing("equipment", "Current", &["NAME-values/", "loops/NAME/loop/p99"], |user, name| {
        loop_has_latency(user, name);
        let object = format!("{}_ps_2", name.replace('-', "_"));
        user.ok(&format!("tahti msg send set/{object}/20A --server {name}"));
        let polled = || user.ok(&format!("tahti em values {name}-values"));
        eventually("the current is polled", || {
            polled().contains(&format!("{object}/current  20.")) || polled().contains("19.")
        });
        user.ok(&format!("tahti caput -w 30 {name}:Setpoint 90"));
        eventually("an alarm", || severity(user, name, "Current") == "MAJOR");
    });
}

#[test]
fn the_frame_template_shows_how_late_minor_frames_begin() {
    is_worth_seeing("frame", "SensorCalls", &["frames/NAME/fast/late-p99"], |user, name| {
        let show = format!("tahti frames show {name}/fast");
        eventually("the frame runs", || user.shows(&show, "begin of minors, late"));
    });
}

#[test]
fn the_full_template_has_all_of_them_and_is_the_default() {
    let user = User::new();
    user.ok("tahti init one --name same && tahti init two --name same --template full && diff -r one two");
    let archived = ["NAME/amplitude", "NAME:Temperature", "NAME-values/", "frames/NAME/fast/late-p99"];
    is_worth_seeing("full", "Temperature", &archived, loop_has_latency);
}

#[test]
fn a_new_plant_runs_and_existing_files_are_never_overwritten() {
    let user = User::new();
    // Plant names are machine-wide: this folder has a name that no other test uses.
    let folder = format!("My plant {}", std::process::id());
    user.ok(&format!("tahti init '{folder}'"));
    // Long enough for a busy machine: the whole plant must be up before the time ends.
    let up = user.run(&format!("tahti up '{folder}' --for 20s"));
    ends_well(&up);
    assert!(text(&up).contains("loop         ready"), "{}", text(&up));
    let file = user.folder.0.join(&folder).join("plant.toml");
    let before = std::fs::read_to_string(&file).unwrap();
    let again = user.run(&format!("tahti init '{folder}'"));
    assert!(
        !again.status.success() && text(&again).contains("plant.toml exists and is not overwritten"),
        "{}",
        text(&again)
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), before);
    let other =
        user.ok("mkdir other && echo mine > other/records.db; tahti init other 2>&1; ls other; cat other/records.db");
    assert!(other.contains("records.db exists") && other.ends_with("\nrecords.db\nmine\n"), "{other}");
    for name in ["no good/name", "a-name-of-more-than-twenty-four-letters"] {
        let wrong = user.run(&format!("tahti init wrong --name '{name}'"));
        assert!(!wrong.status.success() && !user.folder.0.join("wrong").exists(), "{}", text(&wrong));
    }
}

#[test]
fn on_a_full_disk_init_leaves_no_file() {
    let user = User::new();
    // A file size limit of 0 bytes makes each write fail, like a full disk.
    let output = user.run("trap '' XFSZ; ulimit -f 0; exec tahti init full");
    assert!(!output.status.success() && text(&output).contains("full/plant.toml"), "{}", text(&output));
    assert!(!user.folder.0.join("full").exists());
    // Room for the plant file, but not for the records: 4 blocks of 512 bytes in dash, of 1,024 in bash.
    let output = user.run("mkdir small; trap '' XFSZ; ulimit -f 4; exec tahti init small");
    assert!(!output.status.success(), "{}", text(&output));
    assert_eq!(std::fs::read_dir(user.folder.0.join("small")).unwrap().count(), 0);
}

/// A step of a page.
enum Step {
    /// A command and the output printed below it.
    Run { command: String, output: Vec<String> },
    /// A file that the reader writes or extends.
    Write { file: String, appends: bool, text: String },
}

/// The steps of a page: blocks after "Write `FILE`:" or "Append to `FILE`:", and the commands that begin with `$` in
/// console blocks.
fn steps(page: &str) -> Vec<Step> {
    let mut all = Vec::new();
    // Text and blocks alternate.
    for pair in page.split("\n```").collect::<Vec<_>>().chunks(2) {
        let [before, block] = pair else { continue };
        let (language, text) = block.split_once('\n').unwrap_or((*block, ""));
        if let Some((head, file)) = before.trim_end().strip_suffix("`:").and_then(|head| head.rsplit_once('`')) {
            let appends = head.ends_with("Append to ");
            if appends || head.ends_with("Write ") {
                all.push(Step::Write { file: file.to_owned(), appends, text: format!("{text}\n") });
                continue;
            }
        }
        for line in text.lines().filter(|_| language == "console") {
            match (line.strip_prefix("$ "), all.last_mut()) {
                (Some(command), _) => all.push(Step::Run { command: command.to_owned(), output: Vec::new() }),
                (None, Some(Step::Run { output, .. })) => output.push(line.to_owned()),
                (None, _) => panic!("a block begins with a command, not with {line:?}"),
            }
        }
    }
    all
}

/// A line without the parts that differ between runs: numbers with their units, folders, addresses and blanks.
fn shape(line: &str) -> String {
    let word = |word: &str| {
        let is_number = word.starts_with(|first: char| first.is_ascii_digit() || first == '-' || first == '+');
        let is_unit = ["ns", "µs", "ms", "s", "M", "min"].contains(&word.trim_end_matches([',', ';']));
        match word.rsplit_once('/') {
            _ if is_number || is_unit || word.starts_with("http://") => String::new(),
            Some((folder, file)) if folder.starts_with('/') => file.to_owned(),
            // Tests may be started with a nice value.
            _ if word.starts_with("other:") => "other".to_owned(),
            _ => word.to_owned(),
        }
    };
    line.split_whitespace().map(word).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Follows a tutorial. `name` is its plant: plant names are machine-wide, so it is replaced by a unique one.
fn prints_the_output_on_its_page(user: &User, page: &str, name: &str) {
    let page = page.replace(name, &fresh(name).replace('-', "x"));
    let all = steps(&page);
    assert!(all.len() > 4, "{} steps", all.len());
    for step in all {
        match step {
            Step::Run { command, output } => runs(user, &command, &output),
            Step::Write { file, appends, text } => {
                let redirect = if appends { ">>" } else { ">" };
                user.ok(&format!("mkdir -p $(dirname {file}) && cat {redirect} {file} <<'END'\n{text}END\n"));
            }
        }
    }
}

/// Runs a command of a page. It must succeed and print the lines of the page.
fn runs(user: &User, command: &str, output: &[String]) {
    let reads_only = [
        "tahti ps",
        "tahti caget",
        "tahti alarm list",
        "tahti archive",
        "tahti frames",
        "tahti em values",
        "tahti msg list",
        "tahti msg send describe",
        "tahti scope",
        "cat",
    ];
    let missing = |said: &str| -> Vec<String> {
        let shapes: Vec<String> = said.lines().map(shape).collect();
        // States on the way are shorter than the interval at which a command asks for them.
        let passing = |line: &str| line.ends_with(": starting") || line.ends_with(": stopping");
        let shown = output.iter().filter(|line| !line.trim_start().starts_with("...") && !passing(line));
        let expected = shown.map(|line| shape(line));
        expected.filter(|line| !shapes.contains(line)).collect()
    };
    if reads_only.iter().any(|begin| command.starts_with(begin)) {
        // The output on the page needs some time to appear, so the command is repeated.
        let mut last = String::new();
        let begin = std::time::Instant::now();
        while begin.elapsed() < harness::PATIENCE {
            last = text(&user.run(command));
            if missing(&last).is_empty() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
        assert!(missing(&last).is_empty(), "{command}: not printed: {:#?}\nprinted: {last}", missing(&last));
    } else {
        let output = user.run(command);
        let said = text(&output);
        if command.starts_with("tahti down") || (command.starts_with("tahti up") && command.contains(" --for ")) {
            ends_well(&output);
        } else {
            assert!(output.status.success(), "{command}: {said}");
        }
        assert!(missing(&said).is_empty(), "{command}: not printed: {:#?}\nprinted: {said}", missing(&said));
    }
}

#[test]
fn the_first_tutorial_prints_the_output_on_its_page() {
    prints_the_output_on_its_page(&User::new(), include_str!("../../../../docs/tutorials/first-plant.md"), "demo");
}

#[test]
fn the_tutorial_of_a_real_time_loop_prints_the_output_on_its_page() {
    prints_the_output_on_its_page(&User::new(), include_str!("../../../../docs/tutorials/real-time-loop.md"), "cavity");
}

#[test]
fn the_tutorial_of_an_ioc_prints_the_output_on_its_page() {
    prints_the_output_on_its_page(&User::new(), include_str!("../../../../docs/tutorials/epics-ioc.md"), "furnace");
}

#[test]
fn the_tutorial_of_equipment_prints_the_output_on_its_page() {
    prints_the_output_on_its_page(
        &User::new(),
        include_str!("../../../../docs/tutorials/equipment-and-messages.md"),
        "magnets",
    );
}

#[test]
fn the_tutorial_of_a_plant_in_production_prints_the_output_on_its_page() {
    prints_the_output_on_its_page(&User::new(), include_str!("../../../../docs/tutorials/production.md"), "beamline");
}

#[test]
fn the_tutorial_of_a_frame_in_c_prints_the_output_on_its_page() {
    let user = User::new();
    // Cargo builds no shared library for a test.
    let built = Command::new(env!("CARGO")).args(["build", "--quiet", "--package", "capi"]).status().unwrap();
    assert!(built.success(), "libtahti does not build");
    let library = Path::new(env!("CARGO_BIN_EXE_tahti")).parent().unwrap().display();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../capi/include");
    let package = format!(
        "Name: tahti\nDescription: libtahti\nVersion: 0\nCflags: -I{}\nLibs: -L{library} -Wl,-rpath,{library} -ltahti\n",
        include.display()
    );
    std::fs::write(user.folder.0.join("tahti.pc"), package).unwrap();
    prints_the_output_on_its_page(&user, include_str!("../../../../docs/tutorials/frame-in-c.md"), "motion");
}
