//! Executes an entry of the tables on its device: execute and convert. Used by lanes and by the dry run.

use crate::convert::Convert;
use crate::datum::{Datum, Fault};
use crate::device::Device;
use crate::tables::Tables;
use base::MonoNs;

/// Observer of the execution. The empty observer `()` costs nothing.
pub(crate) trait Watch {
    /// The observer is active. Only then values are copied for it.
    const SEES: bool = false;

    /// The device returned this raw value.
    fn read(&mut self, _raw: &Datum<'_>) {}

    /// A step converted a value, forwards or backwards, or refused it.
    fn converted(&mut self, _step: &Convert, _way: Direction, _from: &Datum<'_>, _to: Result<&Datum<'_>, &Fault<'_>>) {}

    /// The device accepted this raw value.
    fn written(&mut self, _raw: &Datum<'_>) {}
}

/// No observer.
impl Watch for () {}

/// The direction of a conversion: from the device, or to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Forwards,
    Backwards,
}

/// Execute and convert: reads the engineering value of an entry.
///
/// Real-time: takes as long as the device; allocates only for texts.
pub(crate) fn read<'a, W: Watch>(
    tables: &'a Tables,
    entry: usize,
    device: &'a mut dyn Device,
    now: MonoNs,
    watch: &mut W,
) -> Result<Datum<'a>, Fault<'a>> {
    let known = &tables.entries[entry];
    let raw = device.read(known.point, now).map_err(Fault::Device)?;
    watch.read(&raw);
    let mut steps = tables.rows[known.row].convert.iter();
    steps.try_fold(raw, |value, step| converted(step, Direction::Forwards, value, watch, |value| step.forward(value)))
}

/// Converts backwards and executes: writes an engineering value.
///
/// Real-time: takes as long as the device; allocates only for texts.
pub(crate) fn write<'a, W: Watch>(
    tables: &'a Tables,
    entry: usize,
    value: Datum<'a>,
    device: &mut dyn Device,
    now: MonoNs,
    watch: &mut W,
) -> Result<(), Fault<'a>> {
    let known = &tables.entries[entry];
    let row = &tables.rows[known.row];
    let present = match row.convert.first() {
        Some(Convert::Bits { .. }) => {
            let present = device.read(known.point, now).map_err(Fault::Device)?;
            watch.read(&present);
            present.number()
        }
        _ => None,
    };
    // The constant of a complement without a value is raw. It is not converted.
    let steps = if row.write.is_some() { &[][..] } else { &row.convert[..] };
    let back = |value, step: &'a Convert| {
        converted(step, Direction::Backwards, value, watch, |value| step.backward(value, present))
    };
    let raw = steps.iter().rev().try_fold(value, back)?;
    device.write(known.point, &raw, now).map_err(Fault::Device)?;
    watch.written(&raw);
    Ok(())
}

fn converted<'a, W: Watch>(
    step: &Convert,
    way: Direction,
    value: Datum<'a>,
    watch: &mut W,
    convert: impl FnOnce(Datum<'a>) -> Result<Datum<'a>, Fault<'a>>,
) -> Result<Datum<'a>, Fault<'a>> {
    if !W::SEES {
        return convert(value);
    }
    let from = value.clone();
    let to = convert(value);
    watch.converted(step, way, &from, to.as_ref());
    to
}
