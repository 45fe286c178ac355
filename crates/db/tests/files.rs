//! Files from outside: no text panics a reader, and errors name a place inside of the text.

use db::{Db, Macros, Schema};
use proptest::prelude::*;

/// Pieces that `.db` and `.dbd` files are made of, in any order.
fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("record(ai, \"a\") {".to_owned()),
        Just("record(calc, \"$(P)b\") { field(CALC, \"A+".to_owned()),
        Just("field(INP, {calc:{expr:'A',args:[1,".to_owned()),
        Just("field(HIHI, \"1".to_owned()),
        Just("info(x, [1,{a:'".to_owned()),
        Just("recordtype(ai) {".to_owned()),
        Just("menu(menuScan) { choice(a, \"b".to_owned()),
        Just("breaktable(t) { 1 2 ".to_owned()),
        Just("device(ai, INST_IO, x, \"y".to_owned()),
        Just("\")".to_owned()),
        Just("}".to_owned()),
        Just("\n".to_owned()),
        "[(){},\"'\\\\#$\\[\\]a-z0-9 ]{0,6}",
        ".{0,3}",
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn no_text_panics_a_reader_and_errors_lie_in_the_text(text in text()) {
        let lines = text.lines().count().max(1) as u32 + 1;
        let mut db = Db::new();
        if let Err(error) = db.load_records(&text, "t.db", &Macros::parse("P=X:"), &mut |_| None) {
            prop_assert!(error.place.line <= lines, "{error}");
        }
        db.init(db::Now::default());
        if let Err(error) = Schema::from_dbd(&text, "t.dbd", &mut |_| None) {
            prop_assert!(error.place.line <= lines, "{error}");
        }
    }
}
