//! Alarms in the plant file: served, found by commands, checked at their location, updated by a reload.

use harness::fresh;
use harness::plant::{Bench, sh};
use harness::process::text;
use serde_json::Value;

fn tables(tree: &str, more: &str) -> String {
    let alarms = format!(
        "[alarms]\nname = \"watch\"\ntree = \"{tree}\"\nfolder = \"journal\"\n[[area]]\npath = \"Machine\"\nguidance = [{{ title = \"Call\", details = \"4711\" }}]\n\
         [[alarm]]\nchannels = [\"process flaky\"]\narea = \"Machine\"\ndescription = \"Ends by itself\"\n[[alarm.guidance]]\ntitle = \"Look\"\ndetails = \"into its log\"\n{more}"
    );
    sh("steady", "exec sleep 1000", "")
        + &sh("flaky", "while [ ! -e go ]; do sleep 0.05; done; exit 1", "restart = { limit = 0 }")
        + &alarms
}

#[test]
fn alarms_in_the_plant_file_are_served_and_a_reload_applies_changes() {
    let tree = fresh("inline");
    let bench = Bench::new("alarm-inline", &tables(&tree, ""));
    bench.ok(&["check", "."]);
    // `None` while the alarms restart.
    let row = |channel: &str| -> Option<Value> {
        let output = bench.run(&["alarm", "list", "--all", "--json", "--server", &tree]);
        let list: Value = serde_json::from_slice(&output.stdout).ok()?;
        list["rows"].as_array()?.iter().find(|row| row["channel"] == channel).cloned()
    };
    bench.ok(&["up", ".", "--detach"]);
    std::fs::write(bench.dir.join("go"), "").unwrap();
    bench.until("the fault is an alarm", || row("process flaky").is_some_and(|row| row["severity"] == "MAJOR"));
    let flaky = row("process flaky").unwrap();
    assert_eq!(flaky["path"], format!("/{tree}/Machine/process flaky"));
    assert_eq!((&flaky["description"], &flaky["guidance"][0]["title"]), (&"Ends by itself".into(), &"Look".into()));
    assert!(row("process steady").is_some_and(|row| row["path"] == format!("/{tree}/processes/process steady")));
    bench.ok(&["alarm", "ack", "process flaky", "--server", &tree]);

    bench.write(&tables(&tree, "[[alarm]]\nchannels = [\"X:NEW\"]\n"));
    assert!(bench.ok(&["reload", "--no-wait"]).contains("watch"));
    bench.until("the new alarm exists", || row("X:NEW").is_some());
    assert_eq!(row("process flaky").unwrap()["severity"], "MAJOR_ACK");

    bench.write(&tables(&tree, "[[alarm]]\nchannels = [\"X:NEW\", \"X:NEW\"]\n"));
    let refused = bench.run(&["reload"]);
    assert!(!refused.status.success() && text(&refused).contains("`X:NEW` is named twice"), "{}", text(&refused));
    assert!(row("X:NEW").is_some(), "running processes continue");
}

#[test]
fn a_reload_applies_changes_of_the_alarm_file_and_refuses_one_with_errors() {
    let tree = fresh("file");
    let plant =
        "[[process]]\nname = \"a\"\ncommand = [\"sleep\", \"1000\"]\n[alarms]\nname = \"watch\"\nfile = \"al.toml\"\n";
    let bench = Bench::new("alarm-file", plant);
    let file = bench.dir.join("al.toml");
    let head = format!("[alarms]\nname = \"{tree}\"\nfolder = \"kept\"\n[[alarm]]\nchannels = [\"X:OLD\"");
    let is_there =
        |channel: &str| text(&bench.run(&["alarm", "list", "--all", "--json", "--server", &tree])).contains(channel);
    std::fs::write(&file, format!("{head}]\n")).unwrap();
    bench.ok(&["up", ".", "--detach"]);
    bench.until("the alarm exists", || is_there("X:OLD"));
    assert!(bench.ok(&["reload"]).contains("nothing differs"));
    std::fs::write(&file, format!("{head}, \"X:NEW\"]\n")).unwrap();
    let expected = "~ watch: restarts (changed: al.toml)";
    assert!(bench.ok(&["reload", "--dry-run"]).contains(expected) && !is_there("X:NEW"));
    assert!(bench.ok(&["reload", "--no-wait"]).contains(expected));
    bench.until("the new alarm exists", || is_there("X:NEW"));
    std::fs::write(&file, "garbage [[").unwrap();
    for command in [&["reload"][..], &["check", "."]] {
        let refused = bench.run(command);
        assert!(!refused.status.success() && text(&refused).contains("al.toml"), "{}", text(&refused));
    }
    assert!(is_there("X:NEW"), "running processes continue");
}

#[test]
fn mistakes_in_alarms_are_reported_with_their_place_before_anything_starts() {
    let bench = Bench::new("alarm-wrong", &tables("ring", "[[alarm]]\nchannels = [\"X\"]\ncount = 2\n"));
    for words in [&["check", "."][..], &["up", "."], &["up", ".", "--detach"]] {
        let output = bench.run(words);
        let said = text(&output);
        let line = std::fs::read_to_string(bench.dir.join("plant.toml")).unwrap();
        let line = line.lines().position(|line| line.starts_with("count")).unwrap() + 1;
        assert!(!output.status.success(), "{words:?}");
        assert!(
            said.contains(&format!("plant.toml:{line}:")) && said.contains("`count` needs `delay`"),
            "{words:?}: {said}"
        );
    }
    assert!(!bench.dir.join("run/p/control").exists(), "no process was started");
}

#[test]
fn alarms_of_a_plant_survive_a_round_trip_through_a_configuration_of_phoebus() {
    let bench = Bench::new(
        "alarm-phoebus",
        &tables(
            "ring",
            "[[alarm]]\nchannels = [\"RF:TEMP\"]\narea = \"RF\"\ndelay = \"15s\"\nfilter = \"'RF:ON' > 0\"\n",
        ),
    );
    let xml = bench.ok(&["alarm", "export", "plant.toml"]);
    assert!(xml.contains("<config name=\"ring\">") && xml.contains("<pv name=\"RF:TEMP\">"), "{xml}");
    std::fs::write(bench.dir.join("ring.xml"), &xml).unwrap();
    let toml = bench.ok(&["alarm", "import", "ring.xml"]);
    assert!(toml.contains("delay = \"15s\"") && toml.contains("'RF:ON' > 0"), "{toml}");
    std::fs::write(bench.dir.join("ring.toml"), &toml).unwrap();
    assert_eq!(bench.ok(&["alarm", "export", "ring.toml"]), xml);
}

#[test]
fn a_device_that_does_not_answer_is_an_alarm_until_it_does() {
    let (tree, poll) = (fresh("stale"), fresh("stale-values"));
    let server = fresh("stale-messages");
    let plant = format!(
        "[messages]\nname = \"{server}\"\n[[equipment]]\nname = \"supplies\"\nfile = \"supplies.toml\"\nserver = \"{server}\"\nafter = [\"{server}\"]\n[alarms]\nname = \"watch\"\ntree = \"{tree}\"\nfolder = \"journal\"\n"
    );
    let bench = Bench::new("alarm-stale", &plant);
    let write = |name: &str, text: &str| std::fs::write(bench.dir.join(name), text).unwrap();
    write("ask.sh", "#!/bin/sh\nexec cat current\n");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(bench.dir.join("ask.sh"), executable).unwrap();
    write("current", "4.5\n");
    write(
        "supplies.toml",
        &format!(
            "[manager]\nname = \"supplies\"\n[[device]]\nname = \"ps\"\ndriver = \"script\"\ncommand = [\"./ask.sh\"]\n\
             [[map]]\nverb = \"get\"\nobject = \"sr_ps\"\ncomplement = \"current\"\ndevice = \"ps\"\npoint = \"current\"\n\
             [[poll]]\nname = \"{poll}\"\nperiod = \"200ms\"\nobjects = [\"sr_ps\"]\n"
        ),
    );
    bench.ok(&["up", ".", "--detach"]);
    let row = || -> Option<Value> {
        let output = bench.run(&["alarm", "list", "--all", "--json", "--server", &tree]);
        let list: Value = serde_json::from_slice(&output.stdout).ok()?;
        list["rows"].as_array()?.iter().find(|row| row["channel"] == "process supplies").cloned()
    };
    let is = |now: &str| row().is_some_and(|row| row["current_severity"] == now);
    bench.until("the plant is OK", || is("OK"));
    std::fs::remove_file(bench.dir.join("current")).unwrap();
    bench.until("it is an alarm", || is("MAJOR"));
    assert_eq!(row().unwrap()["message"], "1 of 1 polled values are stale: sr_ps/current");
    write("current", "4.5\n");
    bench.until("it is OK again", || is("OK"));
    assert_eq!(row().unwrap()["severity"], "MAJOR", "it is not acknowledged");
    let said = text(&bench.run(&["down"]));
    assert!(said.contains(": failed: supplies: 1 of 1 polled values are stale: sr_ps/current"), "{said}");
}
