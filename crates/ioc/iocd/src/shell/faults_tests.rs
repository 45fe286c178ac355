//! What an IOC reports to its supervisor about its parts.

use super::Shell;
use super::asyn_tests::Ioc;
use std::fs;

/// An IOC with a set of autosave, whose file is in the folder `sav`.
fn saving(name: &str, request: &str) -> Ioc {
    let mut ioc = Ioc::start(name, "", "record(ao, \"S:ao\") { field(VAL, \"7\") }");
    fs::create_dir_all(ioc.folder.join("sav")).unwrap();
    fs::write(ioc.folder.join("as.req"), request).unwrap();
    let folder = ioc.folder.display().to_string();
    ioc.run(&format!("set_savefile_path \"{folder}/sav\""));
    ioc.run(&format!("set_requestfile_path \"{folder}\""));
    ioc.run("create_manual_set \"as.req\"");
    ioc
}

#[test]
fn autosave_that_cannot_write_is_a_fault_until_it_can() {
    let mut ioc = saving("no-folder", "S:ao\n");
    ioc.run("manual_save \"as.req\"");
    assert_eq!((ioc.shell.faults.text(), ioc.shell.faults.lacks()), (None, Vec::new()));
    let folder = ioc.folder.join("sav");
    fs::remove_dir_all(&folder).unwrap();
    fs::write(&folder, "").unwrap();
    assert!(ioc.shell.run_line("manual_save \"as.req\"").is_err());
    let expected = format!("autosave cannot write {}/as.sav: Not a directory (os error 20)", folder.display());
    assert_eq!(ioc.shell.faults.text(), Some(expected));
    fs::remove_file(&folder).unwrap();
    fs::create_dir(&folder).unwrap();
    ioc.run("manual_save \"as.req\"");
    assert_eq!(ioc.shell.faults.text(), None);
}

#[test]
fn lines_of_a_request_file_that_are_not_saved_are_reported() {
    for (line, what) in [
        ("$(UNDEF)foo", "UNDEF"),
        ("file \"nosuch.req\"", "nosuch.req"),
        ("NO:SUCH:PV", "1 of 2 channels do not exist: NO:SUCH:PV"),
    ] {
        let mut ioc = saving("request", &format!("{line}\nS:ao\n"));
        // Answered after the set was added.
        ioc.run("manual_save \"as.req\"");
        let lacks = ioc.shell.faults.lacks();
        let start = "autosave does not save all of as.req: ";
        assert!(lacks.len() == 1 && lacks[0].starts_with(start) && lacks[0].contains(what), "{lacks:?}");
    }
}

#[test]
fn values_that_are_not_restored_are_reported_unless_nothing_was_saved_yet() {
    let folder = std::env::temp_dir().join(format!("faults-restore-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    for (text, reports) in [(None, 0), (Some("garbage"), 1)] {
        for name in ["as.sav", "as.savB"].into_iter().filter(|_| text.is_some()) {
            fs::write(folder.join(name), text.unwrap_or_default()).unwrap();
        }
        let mut shell = Shell::new(false, []);
        shell.run_line(&format!("set_savefile_path \"{}\"", folder.display())).unwrap();
        shell.run_line("set_pass1_restoreFile \"as.sav\"").unwrap();
        shell.init().unwrap();
        let lacks = shell.faults.lacks();
        shell.shut_down().unwrap();
        assert_eq!(lacks.len(), reports, "{lacks:?}");
        assert!(lacks.iter().all(|text| text.starts_with("autosave does not restore as.sav: ")), "{lacks:?}");
    }
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn records_that_can_never_work_are_reported_at_the_start() {
    let database = r#"
        record(ai, "a") { field(DTYP, "stream") field(INP, "@nosuch.proto get dev") }
        record(longin, "b") { field(DTYP, "Modbus TCP") field(INP, "@plc holding abc") }
        record(sub, "c") { field(SNAM, "nosuchfunc") }
    "#;
    let port = "drvAsynIPPortConfigure \"dev\" \"127.0.0.1:1\"";
    let ioc = Ioc::start("never", port, database);
    let lacks = ioc.shell.faults.lacks();
    assert!(lacks.len() == 1 && lacks[0].starts_with("3 errors in records, the first at "), "{lacks:?}");
    let ioc = Ioc::start("works", "", "record(ai, \"a\") {}");
    assert_eq!(ioc.shell.faults.lacks(), [""; 0]);
}
