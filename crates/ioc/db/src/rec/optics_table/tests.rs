//! Behaviour of the record with simulated motors, in virtual time. Source: tableRecord.md of synApps optics.

use crate::rec::test_kit::{number, put, seen, started, text, wait, watch};
use crate::{Db, NotifyState, Now};
use base::Value;

const MOTORS: [&str; 6] = ["0X", "0Y", "1Y", "2X", "2Y", "2Z"];
const USER: [&str; 6] = ["AX", "AY", "AZ", "X", "Y", "Z"];

/// A table of 1000 mm by 2000 mm, whose fixed point is half way between its legs, on motors with 2 mm/s.
fn table(fields: &str, without: &[&str]) -> Db {
    let mut records = String::new();
    let mut links = String::new();
    for motor in MOTORS.iter().filter(|motor| !without.contains(motor)) {
        records += &format!(
            "record(motor, \"m{motor}\") {{ field(DTYP, \"Simulated Motor\") field(MRES, \"0.000001\") field(VELO, \"2\")
                 field(DHLM, \"20\") field(DLLM, \"-20\") }} "
        );
        for (field, to) in [
            (format!("M{motor}L"), "VAL PP MS"),
            (format!("R{motor}I"), "VAL NPP"),
            (format!("E{motor}I"), "RBV NPP"),
            (format!("V{motor}L"), "VELO NPP"),
            (format!("V{motor}I"), "VELO NPP"),
            (format!("H{motor}L"), "HLM NPP"),
            (format!("L{motor}L"), "LLM NPP"),
        ] {
            links += &format!("field({field}, \"m{motor}.{to}\") ");
        }
    }
    started(&format!(
        "{records} record(table, \"t\") {{ field(LX, \"1000\") field(LZ, \"2000\") field(RX, \"500\") field(RZ, \"1000\")
             field(LEGU, \"mm\") field(FLNK, \"n\") {links} {fields} }}
         record(calc, \"n\") {{ field(CALC, \"VAL+1\") }}"
    ))
}

fn all<const N: usize>(db: &mut Db, fields: [&str; N]) -> [f64; N] {
    fields.map(|field| number(db, &format!("t.{field}")))
}

fn motors(db: &mut Db) -> [f64; 6] {
    MOTORS.map(|motor| number(db, &format!("m{motor}")))
}

fn near<const N: usize>(found: [f64; N], expected: [f64; N]) {
    let is_near = found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-5);
    assert!(is_near, "{found:?}, expected {expected:?}");
}

#[test]
fn a_translation_moves_its_motors_and_a_put_callback_waits_for_them() {
    let mut db = table("", &[]);
    let channel = db.find("t.Y").unwrap();
    assert_eq!(db.put_notify(&channel, &Value::from(4.0), 7, Now::default()), Ok(NotifyState::Pending));
    near(motors(&mut db), [0.0, 4.0, 4.0, 0.0, 4.0, 0.0]);
    wait(&mut db, 1.0);
    put(&mut db, "t.READ", 1);
    near(all(&mut db, ["Y", "YRB", "EY", "X", "EAX"]), [4.0, 4.0, 2.0, 0.0, 0.0]);
    assert_eq!(db.take_completed(), []);
    wait(&mut db, 1.1);
    assert_eq!(db.take_completed().len(), 1);
    put(&mut db, "t.X", -1.0);
    wait(&mut db, 1.0);
    put(&mut db, "t.READ", 1);
    near(all(&mut db, ["EX", "EY", "EZ"]), [-1.0, 4.0, 0.0]);
    assert_eq!((text(&mut db, "t.AEGU"), number(&mut db, "t.LVIO")), ("degrees".into(), 0.0));
}

#[test]
fn motors_arrive_together_and_have_their_speeds_back() {
    let mut db = table("", &[]);
    put(&mut db, "t.AX", 0.1);
    let rise = 1000.0 * 0.1f64.to_radians().sin();
    let [m0y, m1y, m2y] = ["m0Y", "m1Y", "m2Y"].map(|motor| number(&mut db, motor));
    near([m0y, m1y, m2y], [-rise, -rise, rise]);
    near(all(&mut db, ["V0Y", "V1Y", "V2Y"]), [2.0, 2.0, 2.0]);
    assert!(number(&mut db, "t.V2Z") < 0.01, "M2Z has a short way");
    assert_eq!(number(&mut db, "m2Z.VELO"), 2.0);
    wait(&mut db, 0.5);
    put(&mut db, "t.READ", 1);
    let half = number(&mut db, "t.EAX");
    assert!((half - 0.1 * 1.0 / rise).abs() < 1e-4, "{half}");
    wait(&mut db, 1.0);
    put(&mut db, "t.READ", 1);
    near(USER.map(|axis| number(&mut db, &format!("t.E{axis}"))), [0.1, 0.0, 0.0, 0.0, 0.0, 0.0]);
}

#[test]
fn limits_of_motors_and_users_forbid_a_move_and_restore_the_target() {
    let mut db = table("", &[]);
    put(&mut db, "t.READ", 1);
    near(all(&mut db, ["HLX", "LLX", "HLY", "LLZ"]), [20.0, -20.0, 20.0, -20.0]);
    // 1000 mm away from the fixed point, a leg of 20 mm is reached at asin(0.02).
    near(all(&mut db, ["HLAX", "LLAX"]), [0.02f64.asin().to_degrees(), -0.02f64.asin().to_degrees()]);
    put(&mut db, "t.Y", 21.0);
    assert_eq!((all(&mut db, ["LVIO", "Y"]), motors(&mut db)), ([1.0, 0.0], [0.0; 6]));
    put(&mut db, "t.UHY", 5.0);
    put(&mut db, "t.ULY", -5.0);
    near(all(&mut db, ["HLY", "LLY", "UHYR"]), [5.0, -5.0, 5.0]);
    put(&mut db, "t.Y", 6.0);
    assert_eq!(all(&mut db, ["LVIO", "Y"]), [1.0, 0.0]);
    put(&mut db, "t.Y", 4.0);
    wait(&mut db, 3.0);
    assert_eq!(all(&mut db, ["LVIO", "Y"]), [0.0, 4.0]);
    // The limits of translations and rotations depend on each other.
    put(&mut db, "t.READ", 1);
    near(all(&mut db, ["HLAX", "HLY"]), [0.016f64.asin().to_degrees(), 5.0]);
    let range = db.find("t.Y").map(|channel| db.meta(&channel).control).unwrap();
    near([range.low, range.high], [-5.0, 5.0]);
}

#[test]
fn zero_set_init_and_sync_redefine_positions_without_motion() {
    let mut db = table("field(UHX, \"10\") field(ULX, \"-10\")", &[]);
    put(&mut db, "t.X", 3.0);
    wait(&mut db, 2.0);
    put(&mut db, "t.ZERO", 1);
    near(all(&mut db, ["X", "X0", "XL", "XRB", "EX", "UHXR", "UHX"]), [0.0, 3.0, 3.0, 0.0, 0.0, 7.0, 10.0]);
    put(&mut db, "t.SSET", 1);
    put(&mut db, "t.X", 1.0);
    put(&mut db, "t.SUSE", 1);
    near(all(&mut db, ["X", "X0", "XL", "EX", "ZERO"]), [1.0, 2.0, 3.0, 1.0, 0.0]);
    assert_eq!(number(&mut db, "m0X"), 3.0);
    put(&mut db, "m0X", 5.0);
    put(&mut db, "m2X", 5.0);
    wait(&mut db, 2.0);
    put(&mut db, "t.SYNC", 1);
    near(all(&mut db, ["X", "XL", "SYNC"]), [3.0, 5.0, 0.0]);
    put(&mut db, "t.INIT", 1);
    near(all(&mut db, ["X", "X0", "XL"]), [5.0, 0.0, 5.0]);
}

#[test]
fn units_and_the_orientation_of_the_table_can_change() {
    let mut db = table("field(UHAX, \"1\") field(ULAX, \"-1\")", &[]);
    put(&mut db, "t.AX", 0.1);
    wait(&mut db, 2.0);
    put(&mut db, "t.AUNIT", "ur");
    let micro = 0.1f64.to_radians() * 1e6;
    near(all(&mut db, ["AX", "UHAX"]), [micro, micro * 10.0]);
    assert_eq!(text(&mut db, "t.AEGU"), "ur");
    put(&mut db, "t.AUNIT", "degrees");
    near(all(&mut db, ["AX", "UHAX"]), [0.1, 1.0]);
    put(&mut db, "t.YANG", 90.0);
    // The table's x axis is now the laboratory's z axis.
    near(all(&mut db, ["AX", "AZ"]), [0.0, 0.1]);
    put(&mut db, "t.AZ", 0.0);
    put(&mut db, "t.X", 2.0);
    near(motors(&mut db), [0.0, 0.0, 0.0, 0.0, 0.0, -2.0]);
}

#[test]
fn each_geometry_finds_its_position_also_without_motors() {
    for (geometry, without) in [("SRI", &["2Z"][..]), ("GEOCARS", &[]), ("NEWPORT", &["2X", "2Z"]), ("PNC", &[])] {
        let mut db = table(&format!("field(GEOM, \"{geometry}\")"), without);
        put(&mut db, "t.AX", 0.2);
        put(&mut db, "t.AY", -0.1);
        put(&mut db, "t.Y", 3.0);
        wait(&mut db, 20.0);
        put(&mut db, "t.READ", 1);
        near(all(&mut db, ["LVIO", "EAX", "EAY", "EAZ", "EY"]), [0.0, 0.2, -0.1, 0.0, 3.0]);
        assert_eq!(number(&mut db, "t.SEVR"), 0.0, "{geometry}");
    }
}

#[test]
fn changed_positions_are_posted_and_a_table_without_size_has_an_alarm() {
    let mut db = table("", &[]);
    let fields = ["t.Z", "t.ZRB", "t.EZ", "t.M2Z", "t.HLZ"];
    let queue = watch(&mut db, &fields);
    put(&mut db, "t.Z", 1.0);
    assert_eq!(seen(&mut db, queue, &fields), [("t.Z", 1.0), ("t.ZRB", 1.0), ("t.M2Z", 1.0)]);
    put(&mut db, "t.LX", 0.0);
    assert_eq!((text(&mut db, "t.STAT"), text(&mut db, "t.SEVR")), ("CALC".into(), "INVALID".into()));
}

#[test]
fn an_angle_that_no_table_has_ends_the_search_for_limits() {
    let mut db = table("", &[]);
    put(&mut db, "t.SET", 1);
    for angle in [1e18, -1e18, 1e12] {
        put(&mut db, "t.AX", angle);
    }
    assert!(all(&mut db, ["HLAX", "LLAX"]).iter().all(|limit| limit.is_finite()));
}

#[test]
fn a_put_to_a_limit_moves_no_motor_that_was_adjusted_by_itself() {
    let mut db = table("", &[]);
    put(&mut db, "t.Y", 2.0);
    wait(&mut db, 3.0);
    put(&mut db, "m2Y.VAL", 3.0);
    wait(&mut db, 3.0);
    put(&mut db, "t.UHX", 5.0);
    wait(&mut db, 3.0);
    near(motors(&mut db), [0.0, 2.0, 2.0, 0.0, 3.0, 0.0]);
}

#[test]
fn a_new_yang_posts_the_offsets_and_a_refused_one_keeps_them() {
    let mut db = table("", &[]);
    put(&mut db, "t.X", 4.0);
    wait(&mut db, 3.0);
    put(&mut db, "t.ZERO", 1);
    near(all(&mut db, ["X0", "Z0"]), [4.0, 0.0]);
    let channel = db.find("t.YANG").unwrap();
    assert!(db.put(&channel, &Value::from("north"), Now::default()).is_err());
    near(all(&mut db, ["X0", "Z0"]), [4.0, 0.0]);
    let fields = ["t.X0", "t.Z0", "t.PP0"];
    let queue = watch(&mut db, &fields);
    put(&mut db, "t.YANG", 90.0);
    let [x, z] = all(&mut db, ["X0", "Z0"]);
    near([x, z.abs()], [0.0, 4.0]);
    let posts = seen(&mut db, queue, &fields);
    assert!(posts.contains(&("t.X0", x)) && posts.contains(&("t.Z0", z)), "{posts:?}");
    put(&mut db, "t.Y", 1.0);
    assert!(seen(&mut db, queue, &fields).iter().any(|(field, _)| *field == "t.PP0"));
}
