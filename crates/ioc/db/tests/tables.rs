//! Compares our field tables with the `.dbd` files of C EPICS: every field of every record type.
//!
//! `TAHTI_EPICS_DBD` names the folder with `base.dbd`; `cargo xtask test epics` installs it.

use db::{Db, Schema};
use std::path::PathBuf;

/// Properties of a field, without the number of its menu, which depends on the order of files.
fn facts(field: &db::FieldDef) -> String {
    let db::FieldDef {
        name,
        dbf,
        prompt,
        group,
        special,
        process_passive,
        interest,
        size,
        menu,
        initial,
        level,
        property,
        hex,
        ..
    } = field;
    format!(
        "{name} {dbf} {prompt:?} {group:?} {special:?} {process_passive} {interest} {size} {menu:?} {initial:?} {level} {property} {hex}"
    )
}

#[test]
fn record_types_menus_and_tables_are_those_of_c_epics() {
    let folder = PathBuf::from(
        std::env::var("TAHTI_EPICS_DBD").expect("TAHTI_EPICS_DBD is not set; run `cargo xtask test epics`"),
    );
    let mut include = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
    let text = include("base.dbd").expect("base.dbd in TAHTI_EPICS_DBD");
    let theirs = Schema::from_dbd(&text, "base.dbd", &mut include).unwrap();
    let db = Db::new();
    let ours = db.schema();
    let mut found = Vec::new();
    for kind in &theirs.types {
        let Some(index) = ours.type_index(&kind.name) else {
            found.push(format!("record type {} is missing", kind.name));
            continue;
        };
        let mine = &ours.types[index];
        // Private fields of C code hold nothing that users see. The others must be in the same order.
        let names = |fields: &[db::FieldDef]| fields.iter().map(|field| field.name.clone()).collect::<Vec<_>>();
        if names(&kind.fields) != names(&mine.fields) {
            found.push(format!("{}: fields {:?}, ours {:?}", kind.name, names(&kind.fields), names(&mine.fields)));
            continue;
        }
        for (wanted, have) in kind.fields.iter().zip(&mine.fields) {
            if facts(wanted) != facts(have) {
                found.push(format!("{}.{}: {wanted:?}, ours {have:?}", kind.name, wanted.name));
            }
        }
        if kind.devices != mine.devices {
            found.push(format!("{}: device supports {:?}, ours {:?}", kind.name, kind.devices, mine.devices));
        }
    }
    for menu in &theirs.menus {
        if !ours.menus.contains(menu) {
            found.push(format!("menu {menu:?} is missing or differs"));
        }
    }
    let further = ours.types.iter().map(|kind| kind.name.as_str()).filter(|name| theirs.type_index(name).is_none());
    assert_eq!(
        further.collect::<Vec<_>>(),
        [
            "acalcout",
            "asyn",
            "busy",
            "epid",
            "motor",
            "scalcout",
            "scaler",
            "sscan",
            "sseq",
            "swait",
            "table",
            "transform"
        ],
        "record types that are not in EPICS base"
    );
    assert!(found.is_empty(), "{} differences\n{}", found.len(), found.join("\n"));
}
