//! Equipment tables from arbitrary text, in both forms: nothing panics, and accepted tables answer requests.
#![no_main]

use equipment::{DRIVERS, Driver, check, dry_run};
use libfuzzer_sys::fuzz_target;

const MAIN: &str = "[manager]\nname = \"m\"\ndevices = [\"d.csv\"]\nmap = [\"m.csv\"]\n";

fuzz_target!(|text: &str| {
    let drivers: Vec<&'static Driver> = DRIVERS.iter().collect();
    let (main, csv) = text.split_once('\u{0}').unwrap_or((text, text));
    let mut load = |_: &str| Ok(csv.to_owned());
    for main in [main, MAIN] {
        let checked = check("fuzz.toml", main, &drivers, &mut load, &());
        let shown = checked.render();
        let broken =
            checked.files.iter().flat_map(|file| &file.found).any(|one| one.severity == table::Severity::Error);
        assert_eq!(checked.tables.is_none(), broken, "{shown}");
        let Some(tables) = checked.tables else { continue };
        for object in tables.objects().into_iter().take(16) {
            assert!(tables.describe(object).is_some());
            for request in [format!("get/{object}/{csv}"), format!("put/{object}/{csv}"), format!("put/{object}/1")] {
                let _ = dry_run(&tables, &request, Some("1"));
            }
        }
    }
});
