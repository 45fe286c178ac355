//! Carrying an entry of the tables out on its device: execute and convert. Lanes do it, and a dry run, which looks on.

use crate::convert::Convert;
use crate::datum::{Datum, Fault};
use crate::device::Device;
use crate::tables::Tables;
use base::MonoNs;

/// Who looks on while an entry is carried out; what nobody sees costs nothing.
pub(crate) trait Watch {
    /// Whether anybody does: values are copied for it.
    const SEES: bool = false;

    /// The device has answered this.
    fn read(&mut self, _raw: &Datum<'_>) {}

    /// A step made one value of another, forwards or backwards, or refused it.
    fn converted(&mut self, _step: &Convert, _way: Way, _from: &Datum<'_>, _to: Result<&Datum<'_>, &Fault<'_>>) {}

    /// The device has taken this.
    fn written(&mut self, _raw: &Datum<'_>) {}
}

/// Nobody.
impl Watch for () {}

/// From the device, or to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Forwards,
    Backwards,
}

/// Execute and convert: the engineering value of an entry.
///
/// Real-time: as long as the device takes; allocates only for texts.
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
    steps.try_fold(raw, |value, step| converted(step, Way::Forwards, value, watch, |value| step.forward(value)))
}

/// Convert backwards and execute.
///
/// Real-time: as long as the device takes; allocates only for texts.
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
    // What is written where the complement brings no value is raw already.
    let steps = if row.write.is_some() { &[][..] } else { &row.convert[..] };
    let back =
        |value, step: &'a Convert| converted(step, Way::Backwards, value, watch, |value| step.backward(value, present));
    let raw = steps.iter().rev().try_fold(value, back)?;
    device.write(known.point, &raw, now).map_err(Fault::Device)?;
    watch.written(&raw);
    Ok(())
}

fn converted<'a, W: Watch>(
    step: &Convert,
    way: Way,
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
