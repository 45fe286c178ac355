//! Errors of table files are all found at once, with their places.

use base::CpuSet;
use equipment::{At, Checked, DRIVERS, DeviceSpec, Driver, Machine, Wrong, check, dry_run};
use proptest::prelude::*;

fn drivers() -> Vec<&'static Driver> {
    DRIVERS.iter().collect()
}

fn read(text: &str) -> Checked {
    check("em.toml", text, &drivers(), &mut |name| Err(std::io::Error::other(format!("no file {name}"))), &())
}

const GOOD: &str = r#"[manager]
name = "magnets"

[[device]]
name = "ps_b"
driver = "power-supply"

[[map]]
verb = "put"
object = "sr_mag_ps_{name}"
device = "ps_{name}"
point = "setpoint"
convert = [{ scale = 0.5 }, { offset = 1 }]
unit = "A"
limits = [0, 600]

[[map]]
verb = "get"
object = "sr_mag_ps_{name}"
complement = "current_adc"
device = "ps_{name}"
point = "current"
unit = "A"
"#;

#[test]
fn all_errors_of_equipment_tables_are_reported_at_once_with_their_places() {
    let text = r#"[manager]
nam = "magnets"

[[device]]
name = "ps_b"
driver = "power-suply"

[[device]]
name = "valve"
driver = "script"
command = "./valve.sh"
timeout = "1h"

[[map]]
verb = "gett"
object = "SR_{name}"
complement = "x"
device = "{name}"
point = "state"

[[map]]
verb = "put"
object = "sr_valve"
device = "valve"
point = "state"
lane = "real-time"
convert = [{ enum = { shut = 0, open = 1 } }, { scale = 0 }]

[[map]]
verb = "set"
object = "sr_{what}"
device = "vale"
point = "state"

[[pol]]
"#;
    let shown = read(text).render();
    for expected in [
        "unknown key `nam` in [manager]\n --> em.toml:2:1",
        "`name` is missing in [manager]",
        "unknown driver \"power-suply\"\n --> em.toml:6:10",
        "= help: did you mean `power-supply`?",
        "`timeout` in device \"valve\" cannot be 3600s\n  --> em.toml:12:11",
        "`verb` cannot be \"gett\"\n  --> em.toml:15:8",
        "`object` cannot be \"SR_valve\"",
        "device \"valve\" (script) may block and cannot run on the real-time lane\n  --> em.toml:26:8",
        "`enum` is not the last step\n  --> em.toml:27:12",
        "`scale` is 0\n  --> em.toml:27:57",
        "`set` without `reached`\n  --> em.toml:30:8",
        "no device matches \"vale\"\n  --> em.toml:32:10",
        "unknown table `pol`\n  --> em.toml:35:3",
        "= help: did you mean `poll`?",
        "em.toml: 12 errors",
    ] {
        assert!(shown.contains(expected), "{expected}\nis not in\n{shown}");
    }
}

/// A machine with two CPUs and without any program that a device needs.
struct TwoCpus;

impl Machine for TwoCpus {
    fn look(&self, spec: &DeviceSpec) -> Vec<Wrong> {
        let wrong = |at, message: &str| Wrong { at, message: message.to_owned(), expected: String::new() };
        let points = spec.points.iter().enumerate().map(|(at, point)| wrong(At::Point(at), point));
        let program = (spec.driver.word == "script").then(|| wrong(At::Key("command"), "is not there"));
        program.into_iter().chain(points.filter(|_| spec.driver.word == "script")).collect()
    }

    fn online(&self) -> Option<CpuSet> {
        "0-1".parse().ok()
    }
}

#[test]
fn contradictions_are_found_together_with_all_other_errors() {
    let text = r#"[manager]
name = "bad"
cpu = 77
[[device]]
name = "b"
driver = "power-supply"
seed = 1.5
[[device]]
name = "u"
driver = "power-suply"
[[device]]
name = "fb"
driver = "feedback"
period = "10ms"
input = "sr_b/v"
output = "sr_b"
low = 5
high = 1
[[device]]
name = "valve"
driver = "script"
command = ["./nobody.sh"]
user = -1
[[device]]
name = "one"
driver = "export"
as = "shared"
[[device]]
name = "two"
driver = "export"
as = "shared"
[[map]]
verb = "get"
object = "sr_b"
complement = "v"
device = "b"
point = "current"
[[map]]
verb = "put"
object = "sr_b"
device = "b"
point = "setpoint"
[[map]]
verb = "put"
object = "sr_read_only"
device = "b"
point = "current"
[[map]]
verb = "get"
object = "sr_valve"
complement = "state"
device = "valve"
point = "state"
[[map]]
verb = "get"
object = "SR_b"
device = "b"
point = "curent"
[[map]]
verb = "get"
object = "sr_u"
complement = "v"
device = "u"
point = "current"
[[map]]
verb = "get"
object = "sr_long"
complement = "a_complement_that_is_longer_than_the_name_of_a_variable_may_be"
device = "b"
point = "current"
[[poll]]
name = "values"
period = "1s"
objects = ["sr_long/*"]
"#;
    let shown =
        check("em.toml", text, &drivers(), &mut |name| Err(std::io::Error::other(format!("no file {name}"))), &TwoCpus)
            .render();
    for expected in [
        "CPU 77 is not online\n  --> em.toml:3:7",
        "= expected: CPUs of this machine: 0-1",
        "`seed` in device \"b\" cannot be 1.5\n  --> em.toml:7:8",
        "unknown driver \"power-suply\"\n   --> em.toml:10:10",
        "device \"fb\": `low` is 5 and `high` is 1\n   --> em.toml:17:7",
        "device \"valve\": is not there\n   --> em.toml:22:11",
        "`user` in device \"valve\" cannot be -1\n   --> em.toml:23:8",
        "device \"two\": \"shared\" is exported twice\n   --> em.toml:31:6",
        "`put` would write point \"current\" of device \"b\" (power-supply)\n   --> em.toml:47:9",
        "device \"valve\": state\n   --> em.toml:53:9",
        "`complement` is missing in a row",
        "`object` cannot be \"SR_b\"",
        "device \"b\" (power-supply) has no point \"curent\"\n   --> em.toml:58:9",
        "cannot be polled\n   --> em.toml:74:12",
        "em.toml: 13 errors",
    ] {
        // The width of the margin follows from the largest line number of a finding, so spaces are not compared.
        let one = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(one(&shown).contains(&one(expected)), "{expected}\nis not in\n{shown}");
    }
}

#[test]
fn rows_of_csv_files_are_read_and_their_errors_name_file_and_line() {
    let main = "[manager]\nname = \"m\"\ndevices = [\"d.csv\"]\nmap = [\"m.csv\"]\n";
    let devices = "name,driver,ramp,lag\nps_1,power-supply,50,20ms\nps_2,power-supply,,\n";
    let map = "verb,object,complement,device,point,unit,convert\n\
               get,sr_ps_{n},i,ps_{n},current,A,\"[{ scale = 2 }]\"\n\
               put,sr_ps_{n},,ps_{n},setpoint,A,\n";
    let load = |map: String| move |name: &str| Ok(if name == "d.csv" { devices.to_owned() } else { map.clone() });
    let tables = check("m.toml", main, &drivers(), &mut load(map.to_owned()), &()).tables.unwrap();
    assert_eq!(tables.objects(), ["sr_ps_1", "sr_ps_2"]);
    assert_eq!(tables.devices[0].settings.number("ramp"), Some(50.0));
    assert_eq!(tables.devices[1].place, "d.csv:3");
    let broken = check("m.toml", main, &drivers(), &mut load(map.replace("current", "curent")), &()).render();
    assert!(broken.contains("device \"ps_1\" (power-supply) has no point \"curent\"\n --> m.csv:2:24"), "{broken}");
    assert!(broken.contains("did you mean `current`?"), "{broken}");
}

#[test]
fn a_dry_run_shows_each_step_with_its_values() {
    let tables = read(GOOD).tables.unwrap();
    assert_eq!(
        dry_run(&tables, "put/sr_mag_ps_b/120.5A", None).unwrap(),
        "put/sr_mag_ps_b/120.5A\n\
         \x20 row        em.toml:8  put sr_mag_ps_{name}/{value}, name = b\n\
         \x20 interpret  120.5A -> 120.5A\n\
         \x20 limits     0..600A: within\n\
         \x20 convert    scale 1 + 1, backwards: 120.5 -> 119.5\n\
         \x20 convert    scale 0.5 + 0, backwards: 119.5 -> 239\n\
         \x20 execute    ps_b (power-supply, rt-safe, real-time lane): write setpoint = 239\n\
         \x20 answer     OK\n"
    );
    let wrong = dry_run(&tables, "put/sr_mag_ps_c/1A", None).unwrap_err();
    assert!(wrong.why.contains("no such object here; did you mean \"sr_mag_ps_b\"?"), "{wrong}");
    assert!(dry_run(&tables, "put/sr_mag_ps_b/601A", None).unwrap_err().why.contains("expected 0A to 600A"));
}

#[test]
fn the_description_of_an_object_lists_its_verbs_and_types() {
    let tables = read(GOOD).tables.unwrap();
    let expected = "put {value}: number A 0..600 write; get current_adc: number A read";
    assert_eq!(tables.describe("sr_mag_ps_b"), Some(expected));
}

#[test]
fn a_feedback_whose_objects_are_on_two_lanes_is_refused() {
    let text = format!(
        "{GOOD}\n[[device]]\nname = \"valve\"\ndriver = \"script\"\ncommand = \"./v\"\n\
         [[device]]\nname = \"fb\"\ndriver = \"feedback\"\nperiod = \"1s\"\nlow = 0\nhigh = 1\n\
         input = \"sr_mag_ps_b/current_adc\"\noutput = \"sr_valve\"\n\
         [[map]]\nverb = \"put\"\nobject = \"sr_valve\"\ndevice = \"valve\"\npoint = \"position\"\nlimits = [0, 1]\n"
    );
    let shown = read(&text).render();
    assert!(shown.contains("device \"fb\" reads and writes on two lanes"), "{shown}");
    let shown = read(&text.replace("output = \"sr_valve\"", "output = \"sr_valv\"")).render();
    assert!(
        shown.contains("`output` of device \"fb\" cannot be \"sr_valv\"") && shown.contains("did you mean `sr_valve`?"),
        "{shown}"
    );
}

proptest! {
    #[test]
    fn no_text_panics(cut in 0usize..600, junk in "\\PC{0,20}") {
        let mut text = GOOD.to_owned();
        let at = (0..=cut.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.insert_str(at, &junk);
        let checked = read(&text);
        if let Some(tables) = checked.tables {
            let _ = dry_run(&tables, &format!("put/sr_mag_ps_b/{junk}"), Some(&junk));
        }
    }

    #[test]
    fn only_values_within_the_limits_reach_the_device(value in -1000f64..1000.0) {
        let tables = read(GOOD).tables.unwrap();
        let shown = dry_run(&tables, &format!("put/sr_mag_ps_b/{value}A"), None);
        prop_assert_eq!(shown.is_ok(), (0.0..=600.0).contains(&value));
        if let Ok(shown) = shown {
            let raw: f64 = shown.split("write setpoint = ").nth(1).unwrap().lines().next().unwrap().parse().unwrap();
            prop_assert!((raw * 0.5 + 1.0 - value).abs() < 1e-9);
        }
    }
}
