use super::*;
use base::{CpuSet, DurNs, Policy};
use proptest::prelude::*;

/// A machine with four CPUs, one node, the programs `/bin/good` and `tahti`, the user `op`, no partitions.
struct Bench;

impl Surroundings for Bench {
    fn online(&self) -> Option<CpuSet> {
        Some(CpuSet::first(4))
    }
    fn has_node(&self, node: u16) -> bool {
        node == 0
    }
    fn partition(&self) -> Result<(), Missing> {
        Err(Missing::Cpuset)
    }
    fn program(&self, program: &str, _: Option<&str>, _: Option<&str>) -> Result<(), Missing> {
        if matches!(program, "/bin/good" | "tahti") { Ok(()) } else { Err(Missing::File(program.into())) }
    }
    fn has_user(&self, user: &str) -> bool {
        user == "op"
    }
}

const GOOD: &str = r#"
[plant]
name = "llrf"
[shield]
cpus = "3"
[[process]]
name = "loop"
command = ["tahti", "demo", "llrf"]
class = "fifo:80"
after = ["timing"]
ready = { line = "armed", within = "5s" }
restart = { policy = "always", backoff = "100ms", limit = 2 }
stop = ["INT 2s", "SIGTERM 3s"]
on_fault = "/bin/good off 'all of it'"
heartbeat = { within = "50ms", critical = true }
budget = "50%/20ms"
threads = [{ match = "scan-*", class = "fifo:60" }, { match = "net", cpus = "housekeeping" }]
[[process]]
name = "timing"
command = "/bin/good -v"
user = "op"
env = { A = "1" }
[watchdog]
"#;

fn errors(text: &str) -> Vec<String> {
    let checked = check(text, &Bench);
    checked.found.iter().map(|one| format!("{}:{} {}", one.line, one.column, one.message)).collect()
}

/// A machine of which only this is known.
struct Bare {
    online: Option<CpuSet>,
    /// Whether it bounds no partition's memory.
    lacks_memory: bool,
}

impl Surroundings for Bare {
    fn online(&self) -> Option<CpuSet> {
        self.online
    }
    fn has_node(&self, node: u16) -> bool {
        Anywhere.has_node(node)
    }
    fn partition(&self) -> Result<(), Missing> {
        Anywhere.partition()
    }
    fn program(&self, name: &str, dir: Option<&str>, user: Option<&str>) -> Result<(), Missing> {
        Anywhere.program(name, dir, user)
    }
    fn bound(&self, _: &Partition, _: &[String]) -> Vec<Missing> {
        let lack = crate::partition::Lack::Controller(crate::partition::Controller::Memory).into();
        if self.lacks_memory { vec![lack] } else { Vec::new() }
    }
    fn has_user(&self, user: &str) -> bool {
        Anywhere.has_user(user)
    }
}

#[test]
fn a_good_plant_is_read_with_every_default_filled_in() {
    let checked = check(GOOD, &Bench);
    assert_eq!(checked.found, [], "{}", render_all(&checked.found, "plant.toml", GOOD));
    let plant = checked.plant.unwrap();
    assert_eq!(plant.isolated(), CpuSet::single(3));
    let [control, timing] = &plant.processes[..] else { panic!() };
    assert_eq!(control.cpus, Cpus::Shield);
    assert!(control.mlock && !timing.mlock);
    assert_eq!(control.stop[1], StopStep { signal: Signal::TERM, wait: DurNs::from_secs(3) });
    assert_eq!(control.on_fault.as_deref().unwrap(), ["/bin/good", "off", "all of it"]);
    assert_eq!(control.budget, Budget::Share { percent: 50, period: DurNs::from_ms(20) });
    assert_eq!((control.restart.limit, control.restart.backoff_max), (2, DurNs::from_secs(10)));
    assert_eq!(timing.command, ["/bin/good", "-v"]);
    assert_eq!((timing.class, timing.cpus), (Policy::OTHER, Cpus::Housekeeping));
    assert_eq!(plant.watchdog.unwrap().device, "/dev/watchdog");
}

#[test]
fn all_errors_are_reported_at_once_with_their_places() {
    let text = "\
[plant]
name = \"a b\"
colour = 1
[shield]
cpus = \"0-3\"
profil = \"x\"
[[process]]
name = \"loop\"
comand = \"/bin/good\"
class = \"fifo:100\"
after = [\"loop\", \"tming\"]
restart = { limit = -1, backof = \"1s\" }
[[process]]
name = \"timing\"
command = \"/bin/absent\"
cpus = \"2-9\"
user = \"nobody-here\"
numa = 3
[[process]]
name = \"timing\"
command = []
[[guest]]
[shild]
";
    assert_eq!(
        errors(text),
        [
            "2:8 `name` cannot be \"a b\"",
            "3:1 unknown key `colour` in [plant]",
            "5:8 every CPU of the machine would be isolated",
            "6:1 unknown key `profil` in [shield]",
            "7:1 `command` is missing in process \"loop\"",
            "9:1 unknown key `comand` in process \"loop\"",
            "10:9 `class` in process \"loop\" cannot be \"fifo:100\"",
            "11:10 process \"loop\" would wait for itself",
            "11:18 `after` names an unknown process \"tming\"",
            "12:21 `limit` in restart cannot be -1",
            "12:25 unknown key `backof` in restart",
            "15:11 program \"/bin/absent\" of process \"timing\" cannot be run: /bin/absent does not exist",
            "16:8 CPUs 4-9 of process \"timing\" are not online",
            "17:8 process \"timing\" should run as an unknown user \"nobody-here\"",
            "18:8 process \"timing\" needs memory of NUMA node 3, which does not exist",
            "20:8 a second process \"timing\"; the first one is at line 14",
            "21:11 `command` in process \"timing\" names no program",
            "22:1 `name` is missing in a guest",
            "22:1 a guest has nothing to boot",
            "23:2 unknown table `shild`",
        ]
    );
}

#[test]
fn budgets_are_parsed_in_their_common_forms_within_limits() {
    let share = |percent, ms| Ok(Budget::Share { percent, period: DurNs::from_ms(ms) });
    assert_eq!("80%/100ms".parse(), share(80, 100));
    assert_eq!("5 % / 1s".parse(), share(5, 1000));
    assert_eq!(" none ".parse(), Ok(Budget::None));
    assert_eq!(crate::guard::BUDGET.to_string().parse(), Ok(crate::guard::BUDGET));
    for text in ["", "80", "80/100ms", "100%/1s", "0%/1s", "80%/1ms", "80%/9999us", "80%/2h", "80%/100", "-1%/1s"] {
        let why = text.parse::<Budget>().unwrap_err().to_string();
        assert!(why.contains("80%/100ms (1% to 99%, 10ms to 60s), or none"), "{text}: {why}");
        let found = errors(&with(&format!("class = \"fifo:1\"\nbudget = {text:?}")));
        assert!(found.len() == 1 && found[0].contains("budget"), "{text}: {found:?}");
    }
}

#[test]
fn bounds_and_allowed_shares_of_missed_pulses_are_read_and_mistakes_have_their_places() {
    let keys = "class = \"fifo:1\"\nmemory_max = \"64MiB\"\ntasks_max = 12\nmiss_ratio_max = \"0.1%\"";
    let process = check(&with(keys), &Bench).plant.unwrap().processes.remove(0);
    assert_eq!(process.bounds, Bounds { memory_max: Some(base::Size(64 << 20)), tasks_max: Some(12) });
    assert_eq!(process.miss_ratio_max, Some(MissRatio(1000)));
    assert_eq!(MissRatio(1000).to_string(), "0.1 %");
    assert!(MissRatio(1000).allows(1, 1000) && !MissRatio(1000).allows(2, 1000) && MissRatio(0).allows(0, 0));
    for (keys, expected) in [
        ("memory_max = \"4KiB\"", "8:14 `memory_max` cannot be 4KiB"),
        ("memory_max = 3.5", "`memory_max`"),
        ("tasks_max = 0", "`tasks_max`"),
        ("class = \"fifo:1\"\nmiss_ratio_max = \"0.1\"", "`miss_ratio_max`"),
        ("class = \"fifo:1\"\nmiss_ratio_max = \"101%\"", "`miss_ratio_max`"),
        ("miss_ratio_max = \"1%\"", "8:18 `miss_ratio_max` in process \"a\", which has no loop page"),
    ] {
        let found = errors(&with(keys));
        assert!(found.len() == 1 && found[0].contains(expected), "{keys}: {found:?}");
    }
}

#[test]
fn deadlines_of_results_are_read_and_mistakes_have_their_places() {
    let rule = |keys: &str| {
        let text = with(&format!("class = \"fifo:1\"\ndeadline = {{ {keys} }}"));
        check(&text, &Bench).plant.unwrap().processes.remove(0).deadline.unwrap()
    };
    let read = rule("at = \"5ms\", kind = \"soft\", value = \"half 2ms\", least = \"95%\"");
    assert_eq!(
        (read.to_string().as_str(), read.least, read.is_hard()),
        ("5ms soft half 2ms", Some(base::Worth(950_000)), false)
    );
    let tally = |worth| base::Tally { due: 10, late: 1, worth };
    assert!(read.allows(&tally(9_500_000)) && !read.allows(&tally(9_499_990)) && read.allows(&base::Tally::default()));
    let hard = rule("at = \"5ms\", kind = \"hard\"");
    assert!(hard.allows(&tally(10_000_000)) && !hard.allows(&tally(9_000_000)));
    assert!(rule("at = \"1us\", kind = \"firm\"").allows(&tally(0)), "it needs no share");
    for (keys, expected) in [
        ("kind = \"firm\"", "`at`"),
        ("at = \"5ms\"", "`kind`"),
        ("at = \"0s\", kind = \"firm\"", "`at`"),
        ("at = \"5ms\", kind = \"gentle\"", "`kind` cannot be \"gentle\""),
        ("at = \"5ms\", kind = \"soft\"", "without the value of a late result"),
        ("at = \"5ms\", kind = \"soft\", value = \"step 1ms\"", "`value`"),
        ("at = \"5ms\", kind = \"hard\", value = \"half 1ms\"", "`value` of a hard `deadline`"),
        ("at = \"5ms\", kind = \"firm\", least = \"95\"", "`least`"),
    ] {
        let found = errors(&with(&format!("class = \"fifo:1\"\ndeadline = {{ {keys} }}")));
        assert!(found.len() == 1 && found[0].contains(expected), "{keys}: {found:?}");
    }
    let found = errors(&with("deadline = { at = \"5ms\", kind = \"firm\" }"));
    assert!(found.len() == 1 && found[0].contains("`deadline` in process \"a\", which has no loop page"), "{found:?}");
}

#[test]
fn partitions_are_read_with_their_processes_and_mistakes_have_their_places() {
    let plant = |inside: &str, lines: &str| with(&format!("{inside}\n[[partition]]\nname = \"hmi\"\n{lines}"));
    let keys = "cpu_max = \"50%\"\nmemory_max = \"64MiB\"\nio_max = [{ device = \"/dev/sda\", read = \"1MiB\" }]";
    let plant_of = |text: &str| check(text, &Bench).plant.unwrap();
    let read = plant_of(&plant("cpus = 0\npartition = \"hmi\"\ntasks_max = 3", keys));
    let partition = &read.partitions[0];
    assert_eq!(partition.cpu_max.unwrap().to_string(), "50%/100ms");
    assert_eq!((partition.required, &partition.inner[..]), (true, &[crate::partition::Controller::Pids][..]));
    assert_eq!(read.processes[0].partition.as_deref(), Some("hmi"));
    for (inside, keys, expected) in [
        ("partition = \"hmi\"", "", "has no limit"),
        ("partition = \"hmy\"", "tasks_max = 3", "names an unknown one"),
        ("partition = \"hmi\"\nclass = \"fifo:1\"", "cpu_max = \"50%\"", "is real time, but partition"),
        ("partition = \"hmi\"", "cpu_max = \"0%\"", "`cpu_max`"),
        ("partition = \"hmi\"", "cpu_max = \"1%/1ms\"", "`cpu_max`"),
        ("partition = \"hmi\"", "cpu_weight = 0", "`cpu_weight`"),
        ("partition = \"hmi\"", "io_max = [{ device = \"/dev/sda\" }]", "limits of a device without any limit"),
        ("partition = \"hmi\"", "io_max = [{ read = \"1MiB\" }]", "`device` is missing"),
        ("partition = \"hmi\"", "tasks_max = 3\n[[partition]]\nname = \"hmi\"\ntasks_max = 1", "a second partition"),
        ("", "tasks_max = 3", "no process is in partition"),
    ] {
        let found = errors(&plant(inside, keys));
        assert!(found.iter().any(|one| one.contains(expected)), "{inside} {keys}: {found:?}");
    }
}

#[test]
fn a_partition_that_the_machine_cannot_bound_is_refused_unless_it_is_optional() {
    let text = |more: &str| with(&format!("partition = \"x\"\n[[partition]]\nname = \"x\"\ntasks_max = 3\n{more}"));
    let refused = check(&text(""), &Bare { online: None, lacks_memory: true });
    assert!(refused.plant.is_none() && refused.found[0].message.contains("the memory controller"), "{refused:?}");
    let taken = check(&text("required = false"), &Bare { online: None, lacks_memory: true });
    assert_eq!((taken.plant.is_some(), taken.found[0].severity), (true, Severity::Warning));
}

/// One process with these lines, after a shield of CPU 3.
fn with(lines: &str) -> String {
    format!("[plant]\nname = \"p\"\n[shield]\ncpus = 3\n[[process]]\nname = \"a\"\ncommand = \"/bin/good\"\n{lines}\n")
}

#[test]
fn rules_across_keys_are_checked() {
    for (lines, expected) in [
        ("budget = \"none\"\nclass = \"fifo:1\"", "without a heartbeat"),
        ("class = \"deadline:1ms/2ms/2ms\"\ncpus = 2", "needs a partition for DEADLINE"),
        ("class = \"deadline:1ms/2ms/2ms\"\ncpus = \"shield\"", "which this machine does not support"),
        ("class = \"rr:5\"\ncpus = \"housekeeping\"", "real time on housekeeping CPUs"),
        ("cpus = \"2-3\"", "partly isolated"),
        ("cpus = []", "holds no CPU"),
        ("ready = { line = \"x\", port = 3 }", "names 2 signs"),
        ("ready = {}", "names no sign"),
        ("ladder = [\"kill\", \"demote\"]", "does not rise"),
        ("ladder = [\"demote 1x\"]", "cannot wait"),
        ("stop = [\"NOPE 1s\"]", "cannot be \"NOPE 1s\""),
        ("threads = [{ match = \"x\" }]", "changes nothing"),
        ("threads = [{ match = \"x\", class = \"deadline:1ms/1ms/1ms\" }]", "cannot give DEADLINE"),
        ("capabilities = [\"CAP_NET_ROW\"]", "is no capability"),
        ("budget = \"50%/1s\"", "no effect on class other"),
        ("heartbeat = { within = \"1s\", critical = true }", "there is no watchdog"),
        ("log = { size = \"1B\" }", "cannot be 1B"),
        ("env = { \"A=B\" = \"1\" }", "cannot be the name of a variable"),
        ("env = { A = 1 }", "cannot be a whole number"),
        ("mlock = \"yes\"", "cannot be a text"),
    ] {
        let found = errors(&with(lines));
        assert!(found.iter().any(|message| message.contains(expected)), "{lines}: {found:?}");
        assert_eq!(found.len(), 1, "{lines}: {found:?}");
    }
}

#[test]
fn a_command_with_words_of_a_shell_is_a_warning() {
    let findings = |command: &str| {
        let text = format!("[plant]\nname = \"p\"\n[[process]]\nname = \"a\"\ncommand = {command}\n");
        check(&text, &Anywhere).found.into_iter().map(|finding| finding.message).collect::<Vec<_>>()
    };
    let found = findings("\"echo hi | cat > out\"");
    assert!(found.len() == 1 && found[0].contains("passes \"|\" to its program as text"), "{found:?}");
    for good in ["\"grep '|' log\"", "[\"sh\", \"-c\", \"echo hi | cat\"]", "\"echo a|b\""] {
        assert_eq!(findings(good), [""; 0], "{good}");
    }
}

#[test]
fn a_mistyped_key_is_shown_with_its_line_a_caret_and_the_nearest_key() {
    let text = with("hartbeat = 1");
    let shown = render_all(&check(&text, &Bench).found, "plant.toml", &text);
    assert!(shown.contains("8 | hartbeat = 1\n  | ^^^^^^^^\n"), "{shown}");
    assert!(shown.contains("= help: did you mean `heartbeat`?"), "{shown}");
    assert!(shown.ends_with("plant.toml: 1 error\n"), "{shown}");
}

#[test]
fn the_name_of_a_plant_has_no_dot() {
    let text = "[plant]\nname = \"shield.json\"\n[[process]]\nname = \"a.b\"\ncommand = \"/bin/good\"\n";
    assert_eq!(errors(text), ["2:8 `name` of [plant] cannot be \"shield.json\""]);
}

#[test]
fn a_cycle_of_dependent_processes_is_reported_with_its_members() {
    let mut text = "[plant]\nname = \"p\"\n".to_owned();
    for (name, after) in [("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")] {
        text += &format!("[[process]]\nname = \"{name}\"\ncommand = \"/bin/good\"\nafter = [\"{after}\"]\n");
    }
    assert_eq!(errors(&text), ["6:10 processes wait for each other: a after b after c after a"]);
}

#[test]
fn a_single_cpu_cannot_be_isolated_and_the_remedy_is_to_remove_the_shield() {
    let found = check(
        &with("").replace("cpus = 3", "cpus = 0"),
        &Bare { online: Some(CpuSet::single(0)), lacks_memory: false },
    )
    .found;
    assert!(found[0].remedy.contains("remove [shield]"), "{found:?}");
}

#[test]
fn an_empty_file_is_refused_with_the_missing_parts_and_noise_does_not_panic() {
    assert_eq!(errors(""), ["1:1 the [plant] table is missing", "1:1 the plant has no process"]);
    assert!(!errors("= = =\n[").is_empty());
    assert!(!errors(&"[a.".repeat(10_000)).is_empty());
    assert!(!errors(&"a=[[[[[".repeat(2_000)).is_empty());
    assert_eq!(check("plant = 3\nprocess = 4", &Anywhere).found.len(), 2);
}

#[test]
fn a_shield_takes_the_configured_number_of_best_cpus_and_parts() {
    let shield = |lines: &str| check(&with("").replace("cpus = 3", lines), &Anywhere);
    let plant = shield("cpus = \"auto:2\"\nparts = \"tasks, timers\"").plant.unwrap();
    let shield_of = plant.shield.unwrap();
    assert_eq!((shield_of.cpus, shield_of.parts.to_string()), (CpuSet::first(2), "tasks,timers".to_owned()));
    for (lines, expected) in [
        ("cpus = \"auto:0\"", "expected auto:N"),
        ("cpus = \"auto\"", "or auto:N for the N best CPUs"),
        ("cpus = 3\nparts = \"task\"", "expected some of tasks, interrupts, timers, settings"),
    ] {
        let found = shield(lines).found;
        assert!(found.iter().any(|one| format!("{one:?}").contains(expected)), "{lines}: {found:?}");
    }
}

/// A plant with a frame in which these keys of these tables are given so.
fn frame_with(lines: &[(&str, &str, &str)]) -> String {
    let mut tables = [
        ("frame", vec![("name", "name = \"fast\""), ("minors", "minors = 10"), ("period", "period = \"1ms\"")]),
        ("activity", vec![("name", "name = \"control\""), ("budget", "budget = \"300us\"")]),
        ("mode", vec![]),
    ];
    for (table, key, line) in lines {
        let (_, keys) = tables.iter_mut().find(|(name, _)| name == table).expect("one of the three tables");
        let instead = if *key == "lengths" { &["minors", "period"][..] } else { &[*key][..] };
        keys.retain(|(name, _)| !instead.contains(name));
        keys.push((key, line));
    }
    let whole = lines.iter().any(|(_, key, _)| *key == "activity");
    let mut text = with("");
    for (table, keys) in tables.iter().filter(|(table, keys)| !keys.is_empty() && (!whole || *table != "activity")) {
        text += &if *table == "frame" { "\n[[frame]]\n".to_owned() } else { format!("[[frame.{table}]]\n") };
        keys.iter().for_each(|(_, line)| text += &format!("{line}\n"));
    }
    text
}

/// Includes find no file.
struct Empty;

impl Files for Empty {
    fn find(&mut self, _: &Path, _: &str) -> Result<Vec<PathBuf>, Unreadable> {
        Ok(Vec::new())
    }
    fn text(&mut self, _: &Path) -> Result<String, Unreadable> {
        Err(Unreadable::NoFile)
    }
    fn variable(&self, _: &str) -> Result<Option<String>, Unreadable> {
        Ok(None)
    }
}

#[test]
fn every_example_of_the_table_of_keys_is_accepted() {
    for table in keys::TABLES {
        for key in table.keys {
            let line = format!("{} = {}", key.name, key.example);
            let text = match table.header {
                "[plant]" if key.name != "name" => {
                    let group = if key.name == "operators" { "" } else { "operators = \"ops\"\n" };
                    with("").replacen("[plant]\n", &format!("[plant]\n{group}{line}\n"), 1)
                }
                "[plant]" => format!("[plant]\n{line}\n[[process]]\nname = \"a\"\ncommand = \"x\"\n"),
                "[shield]" if key.name == "cpus" => with("").replace("cpus = 3", &line),
                "[shield]" => with("").replace("cpus = 3", &format!("cpus = 3\n{line}")),
                header @ ("[watchdog]" | "[records]") => with(&format!("{header}\n{line}")),
                "[[process]]" if key.name == "name" => with("").replace("name = \"a\"", &line),
                "[[process]]" if key.name == "command" => with("").replace("command = \"/bin/good\"", &line),
                "[[process]]" if key.name == "after" => {
                    with(&format!("{line}\n[[process]]\nname=\"timing\"\ncommand=\"x\""))
                }
                "[[process]]" if key.name == "partition" => {
                    with(&format!("{line}\n[[partition]]\nname = \"hmi\"\ntasks_max = 9"))
                }
                "[[process]]" => with(&line),
                "[[partition]]" => {
                    let name = if key.name == "name" { "" } else { "name = \"hmi\"\n" };
                    let bound = if key.name == "tasks_max" { "" } else { "tasks_max = 9\n" };
                    with(&format!("partition = \"hmi\"\n[[partition]]\n{name}{bound}{line}"))
                }
                "network" => {
                    let rest = ["device = \"eth0\"", "link = \"100Mbit\"", "rate = \"20Mbit\"", "delay = \"5ms\""];
                    let rest = rest.iter().filter(|other| !other.starts_with(key.name)).copied().collect::<Vec<_>>();
                    let table = format!("network = {{ {line}, {} }}", rest.join(", "));
                    with(&format!("partition = \"hmi\"\n[[partition]]\nname = \"hmi\"\n{table}"))
                }
                "io_max" => {
                    let device = if key.name == "device" { "read = \"1MiB\"" } else { "device = \"/dev/sda\"" };
                    let list = format!("io_max = [{{ {line}, {device} }}]");
                    with(&format!("partition = \"hmi\"\n[[partition]]\nname = \"hmi\"\n{list}"))
                }
                "deadline" | "deadlines" => {
                    let rest = match key.name {
                        "at" => "kind = \"firm\"",
                        "kind" => "at = \"5ms\", value = \"half 2ms\"",
                        "value" => "at = \"5ms\", kind = \"soft\"",
                        _ => "at = \"5ms\", kind = \"firm\"",
                    };
                    match table.header {
                        "deadline" => with(&format!("class = \"fifo:1\"\ndeadline = {{ {rest}, {line} }}")),
                        _ => {
                            let list = format!("deadlines = [{{ {rest}, {line} }}]");
                            format!("[plant]\nname = \"p\"\n[messages]\nname = \"main\"\n{list}")
                        }
                    }
                }
                "heartbeat" if key.name != "within" => with(&format!("heartbeat = {{ within = \"1s\", {line} }}")),
                "threads" if key.name == "match" => with(&format!("threads = [{{ {line}, class = \"rr:1\" }}]")),
                "threads" => with(&format!("threads = [{{ match = \"x\", {line} }}]")),
                "[[ioc]]" if key.name == "load" => with(&format!("[[ioc]]\nname = \"i\"\n{line}")),
                "[[ioc]]" => with(&format!("[[ioc]]\nname = \"i\"\nload = [{{ file = \"a.db\" }}]\n{line}")),
                "[[equipment]]" if key.name == "file" => with(&format!("[[equipment]]\nname = \"e\"\n{line}")),
                "[[equipment]]" => with(&format!("[[equipment]]\nname = \"e\"\nfile = \"a.toml\"\n{line}")),
                "scan" => {
                    let rest = ["rates = [\"1 second\"]", "class = \"fifo:1\""];
                    let rest = rest.iter().filter(|other| !other.starts_with(key.name)).copied().collect::<Vec<_>>();
                    with(&format!("[[ioc]]\nname = \"i\"\nscript = \"x\"\nscan = [{{ {line}, {} }}]", rest.join(", ")))
                }
                "port" => {
                    let rest = ["name = \"p\"", "address = \"/dev/ttyS0\""];
                    let rest = rest.iter().filter(|other| !other.starts_with(key.name)).copied().collect::<Vec<_>>();
                    with(&format!("[[ioc]]\nname = \"i\"\nscript = \"x\"\nport = [{{ {line}, {} }}]", rest.join(", ")))
                }
                "[messages]" => format!("[plant]\nname = \"p\"\n[messages]\nname = \"main\"\n{line}"),
                "[alarms]" if ["file", "folder"].contains(&key.name) => {
                    with(&format!("[alarms]\nname = \"r\"\n{line}"))
                }
                "[alarms]" => with(&format!("[alarms]\nname = \"r\"\nfolder = \"a\"\n{line}")),
                "notify" => with(&format!("[alarms]\nname = \"r\"\nfolder = \"a\"\nnotify = [{{ {line} }}]")),
                "[recorder]" => with(&format!("[recorder]\nname = \"r\"\n{line}")),
                "[archive]" => {
                    let folder = if key.name == "folder" { "" } else { "folder = \"a\"\n" };
                    let of_cluster = ["replication", "ttl"].contains(&key.name);
                    let engine = if of_cluster { "engine = \"cassandra://db1/plant\"\n" } else { "" };
                    with(&format!("[archive]\nname = \"r\"\n{folder}{engine}{line}\n[[signal]]\nnames = [\"A\"]"))
                }
                "[[signal]]" => {
                    let names = match key.name {
                        "names" => "",
                        "streams" => "every = 1\n",
                        _ => "names = [\"A\"]\n",
                    };
                    with(&format!("[archive]\nname = \"r\"\nfolder = \"a\"\n[[signal]]\n{names}{line}"))
                }
                "[dashboard]" if key.name == "retrieval" => with(&format!("[dashboard]\narchive = \"a\"\n{line}")),
                "[dashboard]" if ["certificate", "key"].contains(&key.name) => {
                    let other = if key.name == "key" { "certificate" } else { "key" };
                    with(&format!("[dashboard]\nname = \"d\"\n{other} = \"a\"\n{line}"))
                }
                "[[guest]]" if key.name == "kernel" => with(&format!("[[guest]]\nname = \"g\"\n{line}")),
                "[[guest]]" if key.name == "disks" => with(&format!("[[guest]]\nname = \"g\"\n{line}")),
                "[[guest]]" if key.name == "allow" => {
                    with(&format!("[dashboard]\nname = \"d\"\n[[guest]]\nname = \"g\"\nkernel = \"vmlinuz\"\n{line}"))
                }
                "[[guest]]" if key.name == "firmware_variables" => {
                    with(&format!("[[guest]]\nname = \"g\"\nkernel = \"vmlinuz\"\nfirmware = \"f\"\n{line}"))
                }
                "[[guest]]" => with(&format!("[[guest]]\nname = \"g\"\nkernel = \"vmlinuz\"\n{line}")),
                "[dashboard]" => with(&format!("[dashboard]\n{line}")),
                "bands" | "rules" => {
                    let rest = match table.header {
                        "bands" => &["number = \"1\"", "class = \"other\""],
                        _ => &["access = \"allow\"", "objects = \"*\""],
                    };
                    let rest = rest.iter().filter(|other| !other.starts_with(key.name)).copied().collect::<Vec<_>>();
                    let list = format!("{} = [{{ {line}, {} }}]", table.header, rest.join(", "));
                    format!("[plant]\nname = \"p\"\n[messages]\nname = \"main\"\n{list}")
                }
                "ready" if key.name == "within" => with(&format!("ready = {{ port = 1, {line} }}")),
                "[[frame]]" => frame_with(&[("frame", key.name, &line)]),
                "[[frame.activity]]" => frame_with(&[("activity", key.name, &line)]),
                "[[frame.mode]]" => frame_with(&[
                    ("mode", "name", "name = \"m\""),
                    ("mode", "activities", "activities = []"),
                    ("mode", key.name, &line),
                ]),
                "include" => format!("{line}\n{}", with("")),
                "[variables]" => with(&format!("[variables]\n{line}")),
                inline => with(&format!("{inline} = {{ {line} }}")),
            };
            let joined = join(Path::new("/example"), text, &mut Empty);
            let checked = check_joined(&joined, &Profiles::all(), &Anywhere);
            assert!(checked.plant.is_some(), "{}", joined.render_all(&checked.found));
        }
    }
}

/// Words of plant files, so that random texts get past the first token.
fn plantish() -> impl Strategy<Value = String> {
    let mut words =
        vec!["[plant]", "[shield]", "[[process]]", "[watchdog]", "[", "]", "{", "}", "=", "\n", ",", "\"", "'"];
    words.extend([
        "\"a\"",
        "3",
        "-1",
        "1.5",
        "true",
        "1979-05-27",
        "[]",
        "{}",
        "\"0-3\"",
        "\"1s\"",
        "é",
        "\u{0}",
        "\\",
    ]);
    words.extend(keys::TABLES.iter().flat_map(|table| table.keys).map(|key| key.name));
    proptest::collection::vec(proptest::sample::select(words), 0..60).prop_map(|words| words.join(" "))
}

proptest! {
    #[test]
    fn no_text_panics_and_every_finding_can_be_shown(text in prop_oneof![plantish(), any::<String>()]) {
        let checked = check(&text, &Bench);
        let _ = render_all(&checked.found, "plant.toml", &text);
        prop_assert!(checked.plant.is_some() || !checked.found.is_empty());
    }

    #[test]
    fn a_good_plant_with_one_damaged_byte_never_panics(at in 0..GOOD.len(), byte in any::<char>()) {
        let mut text: Vec<char> = GOOD.chars().collect();
        text[at] = byte;
        let text: String = text.into_iter().collect();
        let _ = render_all(&check(&text, &Bench).found, "plant.toml", &text);
    }
}

const IOC: &str = r#"
[plant]
name = "ring"
[shield]
cpus = "2-3"
[[ioc]]
name = "magnets"
load = [{ file = "menus.dbd" }, { file = "ring.db", macros = "P=SR:,R=1" }, { file = "more.db" }]
access = "site.acf"
scan = [{ rates = [".1 second", ".2 second"], class = "fifo:80", cpus = "3" }, { rates = ["1 second"], class = "other" }]
port = [{ name = "plc", address = "10.0.0.7:502" }, { name = "psu", address = "/dev/ttyS0", baud = 19200, parity = "even" }]
protocols = ["protocols", "/opt/protocols"]
require_rt = true
script = "st.cmd"
env = { EPICS_CAS_INTF_ADDR_LIST = "0.0.0.0" }
[[process]]
name = "sequencer"
command = "/bin/good"
after = ["magnets"]
"#;

#[test]
fn an_ioc_is_a_process_with_a_generated_command_line() {
    let checked = check(IOC, &Bench);
    assert_eq!(checked.found, [], "{}", render_all(&checked.found, "plant.toml", IOC));
    let plant = checked.plant.unwrap();
    let ioc = plant.process("magnets").unwrap();
    let expected = "tahti|ioc|-a|site.acf|-m||-D|menus.dbd|-m|P=SR:,R=1|-d|ring.db|-m||-d|more.db|\
                    --scan|.1 second,.2 second=fifo:80@3|--scan|1 second=other|--port|plc=10.0.0.7:502|\
                    --port|psu=/dev/ttyS0,baud=19200,parity=even|--protocols|protocols:/opt/protocols|--require-rt|st.cmd";
    assert_eq!(ioc.command.join("|"), expected);
    assert_eq!((ioc.cpus, ioc.class), (Cpus::Shield, Policy::OTHER));
    assert_eq!(ioc.ready.when, ReadyCondition::Line("iocRun: All initialization complete".into()));
}

#[test]
fn a_dashboard_shows_the_archive_of_its_plant_unless_it_names_another() {
    let told = |archive: &str, dashboard: &str| {
        let text = format!("{archive}\n[dashboard]\nname = \"page\"\n{dashboard}");
        let checked = check(&with(&text), &Anywhere);
        let plant = checked.plant.unwrap_or_else(|| panic!("{:?}", checked.found)).with_dashboard();
        let command = plant.process("page").unwrap().command.clone();
        command.iter().find_map(|word| word.strip_prefix("--archive=")).map(str::to_owned)
    };
    let archive = "[archive]\nname = \"log\"\nfolder = \"log\"\n";
    let signal = "[[signal]]\nnames = [\"A\"]";
    assert_eq!(told(&format!("{archive}{signal}"), "").as_deref(), Some("log"));
    assert_eq!(told(&format!("{archive}dir = \"/data\"\n{signal}"), "").as_deref(), Some("/data/log"));
    assert_eq!(told(&format!("{archive}{signal}"), "archive = \"old\"").as_deref(), Some("old"));
    assert_eq!(told("", ""), None);
}

#[test]
fn a_dashboard_is_a_process_also_if_its_port_is_taken() {
    let text = "[plant]\nname = \"rf\"\n[[process]]\nname = \"loop\"\ncommand = \"/bin/good\"\n\
                [dashboard]\nname = \"page\"\nlisten = \"[::1]:80\"\nnames = [\"rf.example\"]\nwrite = true\narchive = \"a\"\n";
    let checked = check(text, &Bench);
    assert_eq!(checked.found, [], "{}", render_all(&checked.found, "plant.toml", text));
    let page = checked.plant.unwrap().with_dashboard().process("page").unwrap().clone();
    let expected = "tahti|dash|serve|--plant|rf|--listen=[::1]:80|--name=rf.example|--write|--archive=a";
    assert_eq!(page.command.join("|"), expected);
    assert_eq!(page.ready.when, ReadyCondition::Line("tahti dash: ".into()));
    assert_eq!(errors(&text.replace("[::1]:80", "localhost")).len(), 1);
    let secure = format!("{text}certificate = \"c.pem\"\nkey = \"c.key\"\n");
    let page = check(&secure, &Bench).plant.unwrap().with_dashboard().process("page").unwrap().clone();
    assert!(page.command.join("|").contains("|--certificate=c.pem|--key=c.key|"), "{:?}", page.command);
    let half = errors(&secure.replace("key = ", "# "));
    assert!(half[0].contains("`certificate` without `key`, or `key` without `certificate`"), "{half:?}");
}

#[test]
fn a_recorder_is_a_process_that_records_the_shields_cpus() {
    let text = "[plant]\nname = \"rf\"\n[shield]\ncpus = \"2-3\"\n[[process]]\nname = \"loop\"\ncommand = \"/bin/good\"\n\
                class = \"fifo:80\"\n[recorder]\nname = \"recorder\"\nabove = \"100us\"\nwindow_size = \"1MiB\"\nkeep = 5\n";
    let checked = check(text, &Bench);
    assert_eq!(checked.found, [], "{}", render_all(&checked.found, "plant.toml", text));
    let plant = checked.plant.unwrap();
    let recorder = plant.process("recorder").unwrap();
    let expected = "tahti|trace|serve|--plant|rf|--cpus=2-3|--above=100us|--keep=5|--window-kb=1024";
    assert_eq!(recorder.command.join("|"), expected);
    assert_eq!((recorder.cpus, recorder.class), (Cpus::Housekeeping, Policy::OTHER));
    assert_eq!(recorder.ready.when, ReadyCondition::Line("tahti trace: records".into()));
    let bad = errors(&text.replace("100us", "2s").replace("1MiB", "1KiB"));
    assert_eq!(bad.len(), 2, "{bad:?}");
}

#[test]
fn a_guest_is_a_process_with_a_stop_time_longer_than_that_of_the_guest() {
    let text = "[plant]\nname = \"rf\"\n[[guest]]\nname = \"hmi\"\nvcpus = 2\nmemory = \"256MiB\"\nkernel = \"vmlinuz\"\n\
                append = \"quiet\"\ndisks = [\"-a.qcow2\"]\nnetwork = \"user\"\nvcpu_cpus = \"1\"\nvcpu_class = \"fifo:5\"\nmlock = true\n\
                budget = \"95%/30s\"\nstop_within = \"40s\"\n";
    let checked = check(text, &Bench);
    assert_eq!(checked.found, [], "{}", render_all(&checked.found, "plant.toml", text));
    let guest = checked.plant.unwrap().process("hmi").unwrap().clone();
    let expected = "tahti|guest|serve|--plant=rf|--vcpus=2|--memory=256MiB|--mlock|--kernel=vmlinuz|--append=quiet|--disk=-a.qcow2|\
                    --network=user|--vcpu-cpus=1|--vcpu-class=fifo:5|--stop-within=40s|hmi";
    assert_eq!(guest.command.join("|"), expected);
    assert_eq!((guest.cpus, guest.class, guest.mlock), (Cpus::Housekeeping, Policy::OTHER, false));
    assert_eq!(guest.stop, [StopStep { signal: Signal::TERM, wait: DurNs::from_secs(55) }]);
    assert!(guest.has_own_priorities);
    assert_eq!(errors(&text.replace("256MiB", "1KiB").replace("\"user\"", "\"bridge\"")).len(), 2);
    let empty = errors("[plant]\nname = \"p\"\n[[guest]]\nname = \"g\"\ninitrd = \"i\"\n");
    assert!(empty.iter().any(|line| line.contains("has nothing to boot")), "{empty:?}");
    assert!(empty.iter().any(|line| line.contains("without a kernel")), "{empty:?}");
}

#[test]
fn alarms_are_a_process_that_receives_the_name_of_its_plant() {
    let text = "[plant]\nname = \"rf\"\n[[process]]\nname = \"loop\"\ncommand = \"/bin/good\"\n[alarms]\nname = \"alarms\"\nfile = \"a.toml\"\n";
    let checked = check(text, &Bench);
    assert_eq!(checked.found, [], "{}", render_all(&checked.found, "plant.toml", text));
    let plant = checked.plant.unwrap();
    let alarms = plant.process("alarms").unwrap();
    assert_eq!(alarms.command.join("|"), "tahti|alarm|serve|a.toml|--plant|rf");
    assert_eq!(alarms.ready.when, ReadyCondition::Line(" alarms at @".into()));
    assert_eq!(errors(&text.replace("file = \"a.toml\"", "")).len(), 1);
}

#[test]
fn the_guard_watches_only_processes_that_set_priorities_of_their_threads() {
    let watched = |part: &str| {
        let checked = check(&format!("[plant]\nname = \"p\"\n{part}"), &Anywhere);
        checked.plant.expect(part).processes.iter().any(|process| process.has_own_priorities)
    };
    let ioc = |scan: &str| format!("[[ioc]]\nname = \"i\"\nscript = \"st.cmd\"\n{scan}");
    assert!(watched(&ioc("scan = [{ rates = [\".1 second\"], class = \"fifo:80\" }]")));
    assert!(!watched(&ioc("scan = [{ rates = [\".1 second\"], class = \"other\" }]")));
    assert!(!watched(&ioc("")));
    assert!(watched("[[equipment]]\nname = \"e\"\nfile = \"e.toml\""));
    assert!(watched("[messages]\nname = \"main\"\nbands = [{ number = \"1\", class = \"rr:5\" }]"));
    assert!(!watched("[messages]\nname = \"main\"\nbands = [{ number = \"1\", class = \"other\" }]"));
    assert!(!watched("[[process]]\nname = \"a\"\ncommand = \"/bin/good\""));
}

#[test]
fn all_mistakes_of_an_ioc_are_reported_at_once() {
    let bad = "[plant]\nname = \"x\"\n[[ioc]]\nname = \"a\"\ncommand = \"tahti\"\nload = [{ file = \"a.txt\" }, { macros = \"P=1\" }]\n\
               scan = [{ rates = [\"1 second\"], class = \"fifo:200\" }, { rates = [\"1 second\"], class = \"fifo:1\", cpu = \"1\" }, {}]\n\
               port = [{ name = \"a b\", address = \"10.0.0.7\" }, { name = \"p\", address = \"h:1\", baud = 9600 }, { parity = \"mark\" }]\n\
               [[ioc]]\nname = \"a\"\n";
    let errors = errors(bad);
    for word in [
        "unknown key `command`",
        "`file` cannot be \"a.txt\"",
        "`file` is missing",
        "`class` in scan cannot be \"fifo:200\"",
        "`rates` cannot hold \"1 second\"",
        "unknown key `cpu`",
        "`rates` is missing",
        "`name` cannot be \"a b\"",
        "`address` cannot be \"10.0.0.7\"",
        "a TCP port has no baud",
        "`parity` cannot be \"mark\"",
        "`address` is missing",
        "has nothing to load",
    ] {
        assert!(errors.iter().any(|error| error.contains(word)), "{word}: {errors:#?}");
    }
    assert!(errors.iter().any(|error| error.contains("a second process \"a\"")), "{errors:#?}");
}

const FRAME: &str = r#"
[plant]
name = "p"
[[process]]
name = "a"
command = "a"
[[frame]]
name = "fast"
minors = 10
period = "1ms"
[[frame.activity]]
name = "control"
budget = "300us"
[[frame.activity]]
name = "filter"
budget = "600us"
minors = ["0-3 underrunnable+overrunnable+continuable", "4"]
recovery = "steal:100us"
[[frame.activity]]
name = "log"
discipline = "background"
[[frame.mode]]
name = "normal"
activities = ["control", "filter", "log"]
"#;

#[test]
fn a_frame_is_read_and_gets_a_separate_process() {
    let plant = check(FRAME, &Anywhere).plant.expect("no error");
    let [config] = plant.frames.as_slice() else { panic!("one frame") };
    assert_eq!(config.spec.activities[1].queue.len(), 5);
    assert!(config.spec.activities[1].queue[..4].iter().all(|(_, how)| how.continuable && how.overrunnable));
    assert_eq!(config.spec.activities[1].queue[4].1, frame::Discipline::REAL_TIME);
    let process = plant.process("fast").expect("a process");
    assert_eq!(process.command, ["tahti", "frames", "run"]);
    let told: frame::Config = serde_json::from_str(&process.env[super::FRAME]).unwrap();
    assert_eq!(&told, config, "its process receives the same");
}

#[test]
fn an_activity_with_a_hard_deadline_gets_the_recovery_safe_value() {
    let text =
        FRAME.replace("budget = \"300us\"", "budget = \"300us\"\ndeadline = { at = \"700us\", kind = \"hard\" }");
    let activity = check(&text, &Anywhere).plant.unwrap().frames.remove(0).spec.activities.remove(0);
    assert_eq!(activity.deadline.unwrap().to_string(), "700us hard");
    assert_eq!(activity.recovery, frame::Recovery::SafeValue);
}

#[test]
fn a_frame_may_be_alone_in_its_plant() {
    let from = FRAME.find("[[process]]").unwrap()..FRAME.find("[[frame]]").unwrap();
    let alone = FRAME.replace(&FRAME[from], "");
    let checked = check(&alone, &Anywhere);
    assert_eq!(checked.found, []);
    assert_eq!(checked.plant.unwrap().processes.len(), 1);
}

#[test]
fn a_budget_that_does_not_fit_is_one_error_at_its_line() {
    let text = FRAME.replace("budget = \"300us\"", "budget = \"11ms\"");
    let found = check(&text, &Anywhere).found;
    let [one] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(text.lines().nth(one.line - 1), Some("budget = \"11ms\""), "{one:?}");
    assert!(one.message.contains("over-committed: "), "{one:?}");
}

#[test]
fn a_frame_that_cannot_work_is_refused_with_the_arithmetic() {
    let findings = |from: &str, to: &str| {
        let text = FRAME.replace(from, to);
        assert_ne!(text, FRAME, "{from}");
        check(&text, &Anywhere).found.iter().map(|one| one.message.clone()).collect::<Vec<_>>().join("\n")
    };
    for (from, to, expected) in [
        (
            "budget = \"300us\"",
            "budget = \"500us\"",
            "minor 4 in mode \"normal\" is over-committed: filter 600us + control 500us = 1.1ms, but it has 1ms",
        ),
        ("name = \"fast\"", "name = \"a\"", "has the same name as a previous process"),
        ("period = \"1ms\"", "", "has no length for its minor frames"),
        ("\"4\"]", "\"10\"]", "`minors` cannot be \"10\""),
        ("minors = 10\n", "minors = 10\nbase = \"frame:slow\"\n", "follows \"slow\", which does not exist"),
        ("minors = 10\n", "minors = 10\nclass = \"fifo:4\"\n", "`class` of frame \"fast\" cannot be fifo:4"),
        ("minors = 10\n", "minors = 10\ncpu = \"shield\"\n", "there is no shield"),
        (
            "recovery = \"steal:100us\"",
            "recovery = \"borrow\"",
            "`recovery` in activity \"filter\" cannot be \"borrow\"",
        ),
        (
            "recovery = \"steal:100us\"",
            "recovery = \"skip\"\ndeadline = { at = \"5ms\", kind = \"hard\" }",
            "a hard `deadline` together with a recovery that tolerates its error",
        ),
        (
            "budget = \"300us\"",
            "budget = \"300us\"\ndeadline = { at = \"5ms\", kind = \"firm\", least = \"1%\" }",
            "`least` in the `deadline` of an activity",
        ),
        ("activities = [\"control\"", "activities = [\"controls\"", "names no activity \"controls\""),
    ] {
        let found = findings(from, to);
        assert!(found.contains(expected), "{to}: {found}");
    }
}

#[test]
fn frames_that_share_a_cpu_must_fit_into_it_and_a_follower_needs_another_one() {
    let frame = |name: &str, more: &str| {
        format!(
            "[[frame]]\nname = \"{name}\"\ncpu = 0\nminors = 2\nperiod = \"2ms\"\n{more}\n[[frame.activity]]\nname = \"a\"\nbudget = \"1800us\"\n"
        )
    };
    let found = |more: &str, budget: &str| {
        let text = with("") + "\n" + &frame("f1", "") + &frame("f2", more).replace("1800us", budget);
        check(&text, &Anywhere).found.iter().map(|one| one.message.clone()).collect::<Vec<_>>().join("\n")
    };
    let crowded = found("", "1800us");
    assert!(
        crowded.contains("minor 0 of \"f2\" is over-committed: f2 1.8ms + f1 1.8ms = 3.6ms, but it has 2ms"),
        "{crowded}"
    );
    assert_eq!(found("", "200us"), "");
    assert!(found("base = \"frame:f1\"", "1us").contains("frame \"f2\" follows \"f1\" on the same CPU 0"));
}

#[test]
fn all_mistakes_in_activities_of_a_frame_are_reported_at_once_with_their_places() {
    let text = with("")
        + r#"
[[frame]]
name = "fast"
minors = 3
period = "1ms"
[[frame.activity]]
name = "lazy"
discipline = "background"
recovery = "skip"
[[frame.activity]]
name = "lazy"
budget = "2ms"
discipline = "continuable+real-time"
recovery = "steal:3ms"
[[frame.activity]]
name = "ever"
discipline = "continuable"
[[frame.activity]]
name = "twice"
budget = "10us"
discipline = "underrunnable+underrunnable"
"#;
    let found = check(&text, &Anywhere).found;
    let lines: Vec<_> = found.iter().map(|one| (one.line, one.message.as_str())).collect();
    let line = |of: &str| text[..text.find(of).unwrap()].lines().count();
    let expected = [
        (line("name = \"lazy\"\ndiscipline"), "\"lazy\" recovers by skip"),
        (line("name = \"lazy\"\nbudget"), "has two activities \"lazy\""),
        (line("name = \"lazy\"\nbudget"), "steals 3ms, but the shortest minor has 1ms"),
        (line("discipline = \"continuable+real"), "`discipline` in activity \"lazy\" cannot be"),
        (line("name = \"ever\""), "\"ever\" is continuable in each of its minors"),
        (line("name = \"ever\""), "\"ever\" has no budget"),
        (line("discipline = \"underrunnable+under"), "`discipline` in activity \"twice\" cannot be"),
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:?}");
    for (place, message) in expected {
        assert!(
            lines.iter().any(|(at, said)| at.abs_diff(place) <= 1 && said.contains(message)),
            "{place}: {message} in {lines:?}"
        );
    }
}

#[test]
fn inherited_settings_and_sandboxes_are_read_and_mistakes_have_their_places() {
    let plant =
        |keys: &str| format!("[plant]\nname = \"p\"\n[[process]]\nname = \"a\"\ncommand = \"/bin/good\"\n{keys}");
    let keys = "umask = \"0027\"\nnice = -5\nclass = \"fifo:5\"\noom_score_adjust = -500\nno_new_privileges = false\npass_environment = [\"EPICS_*\"]\n\
                limits = { rttime = \"500ms\" }\n\
                sandbox = { protect_system = \"strict\", protect_home = true, private_tmp = true, read_write_paths = [\"/var\"] }\n";
    let checked = check(&plant(keys), &Bench);
    assert_eq!(checked.found, []);
    let process = checked.plant.unwrap().processes.remove(0);
    let hygiene = process.hygiene;
    assert_eq!((hygiene.umask, hygiene.oom_score_adjust, hygiene.no_new_privileges), (Some(0o27), Some(-500), false));
    assert_eq!(hygiene.nice, Some(-5));
    assert_eq!(process.limits.rttime, Some(DurNs::from_ms(500)));
    let sandbox = hygiene.sandbox.unwrap();
    assert_eq!((sandbox.protect_system, sandbox.protect_home), (ProtectSystem::Strict, ProtectHome::Yes));
    assert!(sandbox.private_tmp && sandbox.read_write_paths == ["/var"]);
    let plain = check(&plant(""), &Bench).plant.unwrap().processes.remove(0).hygiene;
    assert_eq!(plain, Hygiene::default());
    assert!(plain.no_new_privileges);
    for (keys, expected) in [
        ("umask = \"0999\"", "6:9 `umask` cannot be"),
        ("nice = 20", "`nice`"),
        ("class = \"other:5\"\nnice = 5", "7:8 `nice` together with class other:5, which already has a nice value"),
        ("class = \"idle\"\nnice = 5", "`nice` together with class idle"),
        ("umask = \"+7\"", "6:9 `umask` cannot be"),
        ("oom_score_adjust = 2000", "`oom_score_adjust`"),
        ("sandbox = { protect_system = \"all\" }", "`protect_system`"),
        ("sandbox = { read_write_paths = [\"var\"] }", "`read_write_paths` cannot hold \"var\""),
    ] {
        let found = errors(&plant(keys));
        assert!(found.len() == 1 && found[0].contains(expected), "{keys}: {found:?}");
    }
}

/// The command line of a guest with these keys in a plant with these tables.
fn guest_with(keys: &str, tables: &str) -> Result<String, String> {
    let text = with(&format!("[[guest]]\nname = \"g\"\nkernel = \"vmlinuz\"\n{keys}\n{tables}"));
    let checked = check(&text, &Bench);
    match checked.found.first() {
        Some(found) => Err(found.message.clone()),
        None => Ok(checked.plant.unwrap().processes.last().unwrap().command.join(" ")),
    }
}

#[test]
fn rules_of_a_guests_network_are_resolved_from_the_plant() {
    let found = guest_with(
        "allow = [\"dashboard\", \"ca\", \"80=127.0.0.1:8900\"]",
        "[dashboard]\nname = \"d\"\nlisten = \"127.0.0.1:9000\"",
    );
    let rules = "--allow=127.0.0.1:9000 --allow=127.0.0.1:5064 --allow=udp:127.0.0.1:5064 --allow=80=127.0.0.1:8900";
    assert!(found.as_ref().unwrap().contains(rules), "{found:?}");
    for (keys, wrong) in [
        ("allow = [\"dashboard\"]", "`allow` names the dashboard, but the plant has no dashboard"),
        ("allow = [\"internet\"]", "`allow` cannot be \"internet\""),
        ("allow = [\"0=127.0.0.1:1\"]", "`allow` cannot be \"0=127.0.0.1:1\""),
        ("network = \"none\"\nallow = [\"ca\"]", "`allow` needs a network"),
        ("disk_rate = \"1KiB\"", "`disk_rate` cannot be 1KiB"),
        ("firmware_variables = \"v\"", "`firmware_variables` without `firmware`"),
        ("profile = \"beos\"", "`profile` cannot be \"beos\""),
    ] {
        assert_eq!(guest_with(keys, "").unwrap_err(), wrong);
    }
}

#[test]
fn housekeeping_excludes_cpus_shielded_isolated_at_boot_or_outside_the_supervisors_mask() {
    let set = |text: &str| text.parse::<CpuSet>().unwrap();
    let machine = |own: &str, boot: &str| UsableCpus { online: set("0-7"), own: set(own), boot_isolated: set(boot) };
    for (own, boot, shielded, expected) in [
        ("0-7", "", "", "0-7"),
        ("0-7", "", "6-7", "0-5"),
        ("0-7", "4-5", "6-7", "0-3"),
        ("0-1", "", "7", "0-1"),
        ("0-3", "2-3", "1", "0"),
        // The supervisor itself was put on CPUs that the boot line isolated.
        ("4-5", "4-5", "", "4-5"),
        // Its mask is shielded as a whole.
        ("6-7", "", "6-7", "0-5"),
    ] {
        let found = Cpus::Housekeeping.resolve(&machine(own, boot), &set(shielded));
        assert_eq!(found, set(expected), "mask {own}, isolated at boot {boot:?}, shielded {shielded:?}");
    }
}

/// A machine with partitions, on which some folders are unusable.
struct Folders;

impl Surroundings for Folders {
    fn online(&self) -> Option<CpuSet> {
        Some(CpuSet::first(4))
    }
    fn has_node(&self, _: u16) -> bool {
        true
    }
    fn partition(&self) -> Result<(), Missing> {
        Ok(())
    }
    fn program(&self, _: &str, _: Option<&str>, _: Option<&str>) -> Result<(), Missing> {
        Ok(())
    }
    fn has_user(&self, _: &str) -> bool {
        true
    }
    fn can_hold(&self, folder: &Path) -> Result<(), Missing> {
        if folder.starts_with("/proc") { Err(Missing::KernelFiles(folder.into())) } else { Ok(()) }
    }
    fn is_folder(&self, folder: &Path) -> Result<(), Missing> {
        if folder == Path::new("/root/none") { Err(Missing::File(folder.into())) } else { Ok(()) }
    }
    fn is_file(&self, file: &Path) -> Result<(), Missing> {
        if file.ends_with("none") { Err(Missing::File(file.into())) } else { Ok(()) }
    }
}

#[test]
fn a_name_of_the_wrong_type_does_not_make_the_name_unknown_to_others() {
    let text = "[plant]\nname = \"p\"\n[[process]]\nname = 5\ncommand = \"x\"\n[[process]]\nname = \"a\"\ncommand = \"x\"\nafter = [\"loop\"]\n";
    let found = check(text, &Anywhere).found;
    let texts: Vec<_> = found.iter().map(|one| (one.message.as_str(), one.expected.as_str())).collect();
    assert_eq!(texts, [("`name` in a process cannot be a whole number", "a text in quotes")]);
}

#[test]
fn a_missing_file_of_a_service_is_an_error_at_its_place_unless_another_process_may_create_it() {
    let found = |text: &str| -> Vec<String> {
        let checked = check(&format!("[plant]\nname = \"p\"\n{text}"), &Folders);
        checked.found.iter().map(|one| format!("{}:{}: {}", one.line, one.column, one.message)).collect()
    };
    let missing = |key: &str| found(&format!("[[ioc]]\nname = \"i\"\ndir = \"x\"\n{key}"));
    assert_eq!(missing("script = \"none\"\n"), ["6:10: process \"i\" cannot read \"none\": x/none does not exist"]);
    assert_eq!(missing("script = \"$(TOP)/none\"\n"), Vec::<String>::new());
    let made =
        "[[process]]\nname = \"a\"\ncommand = \"x\"\n[[ioc]]\nname = \"i\"\nafter = [\"a\"]\nscript = \"none\"\n";
    assert_eq!(found(made), Vec::<String>::new());
    let wrong = found("[messages]\nname = \"main\"\n[[equipment]]\nname = \"e\"\nfile = \"none\"\n");
    assert_eq!(wrong, ["7:8: process \"e\" cannot read \"none\": none does not exist"]);
}

#[test]
fn unusable_folders_and_refused_reservations_are_found_before_the_start() {
    let found = |text: &str| -> Vec<String> {
        let checked = check(&format!("[plant]\nname = \"p\"\n{text}"), &Folders);
        checked.found.iter().map(|one| format!("{}: {}", one.line, one.message)).collect()
    };
    let archive = "[archive]\nname = \"a\"\nfolder = \"FOLDER\"\n[[signal]]\nnames = [\"X\"]\n";
    assert_eq!(found(&archive.replace("FOLDER", "/data")), Vec::<String>::new());
    let wrong = found(&archive.replace("FOLDER", "/proc/nowhere"));
    assert!(wrong.len() == 1 && wrong[0].starts_with("5: `folder` cannot hold files: /proc/nowhere"), "{wrong:?}");
    let process = "[[process]]\nname = \"a\"\ncommand = \"x\"\n";
    let wrong = found(&format!("[records]\nfolder = \"/proc/none\"\n{process}"));
    assert!(wrong.len() == 1 && wrong[0].starts_with("4: `folder` cannot hold files"), "{wrong:?}");
    let wrong = found(&format!("{process}dir = \"/root/none\"\n"));
    assert!(wrong.len() == 1 && wrong[0].contains("cannot work in `dir`: /root/none does not exist"), "{wrong:?}");
    let reserves = |class: &[&str], cpus: &str| {
        let each = class.iter().enumerate().map(|(at, class)| {
            format!("[[process]]\nname = \"a{at}\"\ncommand = \"x\"\nclass = \"deadline:{class}\"\ncpus = \"shield\"\n")
        });
        found(&format!("[shield]\ncpus = \"{cpus}\"\n{}", each.collect::<String>()))
    };
    assert_eq!(reserves(&["1ms/10ms/10ms"], "3"), Vec::<String>::new());
    for (class, expected) in [
        ("1ms/10ms/5s", "has a DEADLINE period of 5s, which the kernel refuses"),
        ("10us/20us/20us", "has a DEADLINE period of 20us, which the kernel refuses"),
        ("960us/1ms/1ms", "together ask for 96.0 % of a CPU"),
    ] {
        let wrong = reserves(&[class], "3");
        assert!(wrong.len() == 1 && wrong[0].contains(expected), "{class}: {wrong:?}");
    }
    let wrong = reserves(&["500us/1ms/1ms", "500us/1ms/1ms"], "3");
    assert!(wrong.len() == 1 && wrong[0].contains("together ask for 100.0 % of a CPU"), "{wrong:?}");
    assert_eq!(reserves(&["500us/1ms/1ms", "500us/1ms/1ms"], "2-3"), Vec::<String>::new());
}

/// The plant of these tables, with its dashboard.
fn plant_of(tables: &str) -> Plant {
    let text = format!("[plant]\nname = \"rf\"\n{tables}");
    let checked = check(&text, &Anywhere);
    checked.plant.unwrap_or_else(|| panic!("{}", render_all(&checked.found, "test", &text))).with_dashboard()
}

#[test]
fn variables_of_the_plant_reach_every_process_and_those_of_a_process_win() {
    let plant = plant_of(
        "env = { A = \"1\", B = \"2\" }\n[[process]]\nname = \"a\"\ncommand = \"x\"\nenv = { B = \"own\" }\n\
         [[ioc]]\nname = \"i\"\nload = [{ file = \"a.db\" }]\n[messages]\nname = \"main\"\n",
    );
    let value = |process: &str, name: &str| plant.process(process).unwrap().env[name].clone();
    assert!(plant.processes.len() >= 4 && plant.processes.iter().all(|process| process.env["A"] == "1"));
    assert_eq!((value("a", "B"), value("i", "B"), value("dashboard", "B")), ("own".into(), "2".into(), "2".into()));
    let text = "[plant]\nname = \"rf\"\nenv = { A = 1 }\n[[process]]\nname = \"a\"\ncommand = \"x\"\n";
    let wrong = check(text, &Anywhere);
    assert!(wrong.plant.is_none() && wrong.found[0].message.contains("`env` in [plant]"), "{:?}", wrong.found);
}

#[test]
fn processes_of_a_plant_find_its_iocs_message_server_and_alarms_automatically() {
    let ioc = |name: &str, env: &str| {
        format!("[[ioc]]\nname = \"{name}\"\nload = [{{ file = \"a.db\" }}]\nenv = {{ {env} }}\n")
    };
    let rest = "[messages]\nname = \"ring\"\n[alarms]\nname = \"alarms\"\nfolder = \"a\"\n\
                [[process]]\nname = \"client\"\ncommand = \"x\"\n\
                [[process]]\nname = \"elsewhere\"\ncommand = \"x\"\nenv = { EPICS_CA_ADDR_LIST = \"10.0.0.255\", TAHTI_MESSAGES = \"m\" }\n";
    let plant = plant_of(
        &(ioc("one", "EPICS_CA_SERVER_PORT = \"5074\"")
            + &ioc("two", "EPICS_CAS_SERVER_PORT = \"5075\", EPICS_CAS_INTF_ADDR_LIST = \"10.0.0.7\"")
            + &ioc("usual", "EPICS_CAS_INTF_ADDR_LIST = \"0.0.0.0\"")
            + rest),
    );
    let set = |process: &str| -> Vec<String> {
        plant.process(process).unwrap().automatic.iter().map(|(name, value)| format!("{name}={value}")).collect()
    };
    let both = "EPICS_CA_ADDR_LIST=127.0.0.1:5074 10.0.0.7:5075";
    for process in ["client", "usual", "alarms", "dashboard"] {
        assert_eq!(set(process), [both, "TAHTI_ALARMS=rf", "TAHTI_MESSAGES=ring"], "{process}");
    }
    assert_eq!(set("one")[0], "EPICS_CA_ADDR_LIST=10.0.0.7:5075");
    assert_eq!(set("two")[0], "EPICS_CA_ADDR_LIST=127.0.0.1:5074");
    assert_eq!(set("elsewhere"), ["TAHTI_ALARMS=rf"], "variables set by a process are kept");
    // A port of the whole plant is found by each client already.
    let plain = plant_of(&("env = { EPICS_CA_SERVER_PORT = \"5080\" }\n".to_owned() + &ioc("one", "")));
    assert!(plain.processes.iter().all(|process| process.automatic.is_empty()), "{plain:?}");
}

#[test]
fn processes_of_a_plant_with_errors_are_kept_so_that_their_files_are_checked() {
    let rest = "[[ioc]]\nname = \"i\"\nload = [{ file = \"a.db\" }]\n";
    for wrong in [
        "[plant]\nname = \"rf\"\n[dashboard]\nlisten = \"nowhere\"\n",
        "[plant]\n",
        "[plant]\nname = \"rf\"\n[shield]\n",
        "[plant\nname = \"rf\"\n",
        "[plant]\nname = \"rf\"\n[[frame]]\nname = \"f\"\nminors = 1\nperiod = \"1ms\"\n[[frame.activity]]\nname = \"a\"\nbudget = \"2ms\"\n",
    ] {
        let checked = check(&(wrong.to_owned() + rest), &Anywhere);
        assert!(checked.plant.is_none() && !checked.found.is_empty(), "{wrong}");
        assert!(checked.readable.iter().any(|process| process.name == "i"), "{wrong}: {:?}", checked.found);
    }
}

#[test]
fn an_unclosed_table_is_one_finding_at_its_line() {
    let text = "[plant\nname = \"rf\"\n\n[[process]]\nname = \"a\"\ncommand = \"x\"\nclass = \"fast\"\n";
    let found = check(text, &Anywhere).found;
    assert_eq!(found.iter().map(|one| one.line).collect::<Vec<_>>(), [1, 7], "{found:?}");
}

#[test]
fn scans_and_bands_are_promised_for_the_threads_that_the_services_name() {
    let text = "[plant]\nname = \"p\"\n[messages]\nname = \"m\"\nbands = [{ number = \"7\", class = \"fifo:40\", cpu = \"0\" }, { number = \"2\", class = \"other\" }]\n\
        [[ioc]]\nname = \"ioc\"\nload = [{ file = \"t.db\" }]\nscan = [{ rates = [\"1 second\"], class = \"other\" }, { rates = [\".1 second\"], class = \"fifo:30\", cpus = \"0-1\" }]\n";
    let plant = check(text, &Anywhere).plant.unwrap();
    let rules = |name: &str| {
        let process = plant.processes.iter().find(|process| process.name == name).unwrap();
        let cpus = |rule: &ThreadRule| rule.cpus.map_or("any".to_owned(), |cpus| cpus.to_string());
        let rule = |rule: &ThreadRule| format!("{} {} {}", rule.pattern, rule.class.unwrap(), cpus(rule));
        process.own_threads.iter().map(rule).collect::<Vec<_>>()
    };
    assert_eq!(rules("m"), ["band-7 fifo:40 0", "band-2 other any"]);
    // Numbered by urgency, one thread for each CPU of a group.
    assert_eq!(rules("ioc"), ["scan-0 fifo:30 0", "scan-1 fifo:30 1", "scan-2 other any"]);
}
