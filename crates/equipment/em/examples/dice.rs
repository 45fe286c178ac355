//! A manager with a separate driver: `dice` devices, whose point `roll` returns a random number at each read.
//!
//! `cargo run -p em --example dice -- dice.toml [SERVER]` serves, as `tahti em serve` does; see docs/how-to/add-an-equipment-driver.md.

use base::MonoNs;
use em::{DeviceError, Options, serve};
use equipment::{Access, Datum, Device, DeviceFault, DeviceSpec, Driver, ExpectedPoint, Pace};
use table::{Table, key};

static DICE: Driver = Driver {
    word: "dice",
    // Arithmetic only: it may run on the real-time lane.
    pace: Pace::RtSafe,
    table: &Table {
        header: "dice",
        doc: "Dice. Points: `roll`.",
        keys: &[
            key("name", r#""dice""#, "letters and digits", "", "Name of the device."),
            key("driver", r#""dice""#, "`dice`", "", "Driver name."),
            key("sides", "6", "number", "`6`", "Number of sides."),
        ],
    },
    // With `Access::ReadOnly` the check would refuse rows that write the point. Here the device itself refuses the write.
    point: |point| if point == "roll" { Ok(Access::ReadWrite) } else { Err(ExpectedPoint("roll".to_owned())) },
};

struct Dice {
    sides: f64,
    state: u64,
}

impl Device for Dice {
    fn read(&mut self, _: usize, _: MonoNs) -> Result<Datum<'_>, DeviceFault> {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        Ok(Datum::Number(1.0 + ((self.state >> 33) as f64 % self.sides).floor()))
    }

    fn write(&mut self, _: usize, _: &Datum<'_>, _: MonoNs) -> Result<(), DeviceFault> {
        Err(DeviceFault::Refused("dice are rolled, not set".into()))
    }
}

fn make(spec: &DeviceSpec) -> Option<Result<Box<dyn Device + Send>, DeviceError>> {
    if spec.driver.word != DICE.word {
        return None;
    }
    let sides = spec.settings.number("sides").unwrap_or(6.0);
    Some(if sides >= 1.0 {
        Ok(Box::new(Dice { sides, state: 1 }))
    } else {
        Err(DeviceError::Refused(format!("sides = {sides}; expected at least 1")))
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let file = words.next().ok_or("dice FILE [SERVER]")?.into();
    let server = words.next().unwrap_or("main".to_owned());
    let options = Options { file, server, drivers: &[&DICE], plug_in: Box::new(make), require_rt: false };
    Ok(serve(&options, &mut |line| println!("{line}"), &mut |_| {})?)
}
