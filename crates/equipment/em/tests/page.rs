//! The page on equipment tables, and device settings that only the machine shows to be unusable.

#[test]
fn the_page_on_equipment_tables_is_up_to_date() {
    let page = include_str!("../../../../docs/reference/equipment-tables.md");
    assert!(
        page == equipment::document(em::DRIVERS),
        "run `tahti em check --document > docs/reference/equipment-tables.md`"
    );
}

#[test]
fn the_example_has_no_error() {
    for name in ["magnets", "bpms", "rf", "feedback", "poller"] {
        let file = format!("{}/../../../examples/madoca/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        let checked = em::read(file.as_ref(), &[]).unwrap();
        assert!(checked.tables.is_some(), "{}", checked.render());
    }
}

#[test]
fn unusable_device_settings_are_found_by_the_check_with_all_other_errors() {
    let folder = std::env::temp_dir().join(format!("tahti-em-check-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let text = r#"[manager]
name = "bad"
cpu = 1023
[[device]]
name = "there"
driver = "script"
command = "sh"
[[device]]
name = "file"
driver = "script"
command = ["./nobody.sh"]
[[device]]
name = "path"
driver = "script"
command = ["no-such-program-anywhere"]
[[device]]
name = "data"
driver = "script"
command = ["./bad.toml"]
[[device]]
name = "plc"
driver = "modbus"
address = "nocolon"
unit = 256
[[device]]
name = "supply"
driver = "stream"
address = "127.0.0.1:1"
file = "none.proto"
baud = 9600
[[device]]
name = "odd"
driver = "stream"
address = "/dev/ttyS0"
file = "good.proto"
parity = "maybe"
[[map]]
verb = "get"
object = "sr_s"
complement = "x"
device = "supply"
point = "foo"
[[map]]
verb = "get"
object = "sr_o"
complement = "x"
device = "odd"
point = "absent"
[[map]]
verb = "put"
object = "sr_p"
device = "plc"
point = "input:1"
"#;
    let file = folder.join("bad.toml");
    std::fs::write(&file, text).unwrap();
    std::fs::write(folder.join("good.proto"), "Terminator = LF;\nread { out \"?\"; in \"%f\"; }\n").unwrap();
    let shown = em::read(&file, &[]).unwrap().render();
    std::fs::remove_dir_all(&folder).unwrap();
    let lines: Vec<&str> = shown.lines().filter(|line| line.starts_with("error")).collect();
    for (at, expected) in [
        "CPU 1023 is not online",
        "device \"file\": ",
        "device \"path\": \"no-such-program-anywhere\" is in no folder of PATH",
        "device \"data\": ",
        "device \"plc\": address \"nocolon\"; expected HOST:PORT",
        "`unit` in device \"plc\" cannot be 256",
        "none.proto",
        "option baud=9600; expected keepalive",
        "device \"odd\": ",
        "absent",
        "`put` would write point \"input:1\" of device \"plc\" (modbus)",
    ]
    .into_iter()
    .enumerate()
    {
        assert!(lines.iter().any(|line| line.contains(expected)), "{at}: {expected}\nis not in\n{shown}");
    }
    assert!(shown.contains("bad.toml: 11 errors") && !shown.contains("device \"there\""), "{shown}");
}
