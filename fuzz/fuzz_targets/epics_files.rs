//! `.db`, `.dbd`, `.acf` and `.substitutions` files: no text panics a parser, and each error names a place in it.
#![no_main]

use db::{Db, Macros, Now, Security, parse_substitutions};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let macros = Macros::parse("P=X:,R=$(P)y");
    let mut db = Db::new();
    // A file that includes itself ends at the limit of depth.
    let mut include = |name: &str| (name == "self").then(|| text.to_owned());
    if db.load_records(text, "fuzz.db", &macros, &mut include).is_ok() {
        db.init(Now::default());
        for scan in db.scans() {
            db.scan(scan.index, Now::default());
        }
        db.advance(Now::default(), 1_000);
    }
    let _ = Db::new().load_dbd(text, "fuzz.dbd", &mut include);
    let _ = Security::parse(text, "fuzz.acf", &macros);
    let _ = parse_substitutions(text, "fuzz.substitutions");
});
