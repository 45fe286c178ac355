//! Equipment managers as processes: tables and lanes of [`equipment`], requests of the [`broker`].
//!
//! Each band has a thread that takes its requests. The thread of the highest band is the real-time lane: it owns the
//! rt-safe devices, serves its own band directly, runs loops and polls, and takes what other bands have for it in bounded
//! bursts. Each device that may block has a thread of its own. Requests and answers pass between threads by bounded
//! wait-free rings of fixed-size items; no lock, no allocation on the real-time lane.
//!
//! Never here: what a request means (that is [`equipment`]'s), and who may ask (the message server's).
#![forbid(unsafe_code)]

mod batch;
mod devices;
mod front;
mod job;
mod lane;
mod polls;
mod serve;
mod values;
mod work;

pub use devices::{DRIVERS, Maker, plug_in};
pub use serve::{Options, serve};
pub use values::{Shown, values};

use equipment::{Checked, Driver, check};
use std::path::Path;
use table::Diagnostics;

/// Reads a manager's file and those that it names; `drivers` beside those of tahti.
///
/// # Errors
/// The main file cannot be read.
pub fn read(file: &Path, more: &[&'static Driver]) -> Result<Checked, String> {
    let text = |path: &Path| std::fs::read_to_string(path).map_err(|error| error.to_string());
    let folder = file.parent().unwrap_or(Path::new(""));
    let main = text(file).map_err(|why| format!("equipment file {}: {why}", file.display()))?;
    let drivers: Vec<&'static Driver> = equipment::DRIVERS.iter().chain(DRIVERS).chain(more.iter().copied()).collect();
    let mut checked = check(&file.display().to_string(), &main, &drivers, &mut |name| text(&folder.join(name)));
    look_further(&mut checked, folder);
    Ok(checked)
}

/// Looks into the files that devices name, which only their drivers understand.
fn look_further(checked: &mut Checked, folder: &Path) {
    let Some(tables) = &checked.tables else { return };
    let mut wrong = Vec::new();
    for (device, spec) in tables.devices.iter().enumerate() {
        for (point, why) in devices::check(spec, folder) {
            let of = |entry: &&equipment::Entry| entry.device == device && Some(entry.point) == point;
            let row = tables.entries.iter().find(of).map(|entry| &tables.rows[entry.row]);
            let (place, word) = match (row, point) {
                (Some(row), Some(point)) => (&row.place, spec.points[point].as_str()),
                _ => (&spec.place, spec.settings.text("file").unwrap_or_default()),
            };
            wrong.push((place.clone(), word.to_owned(), format!("device {:?}: {why}", spec.name)));
        }
    }
    for (place, word, why) in wrong {
        let Some((name, line)) = place.rsplit_once(':') else { continue };
        let Some(file) = checked.files.iter_mut().find(|file| file.name == name) else { continue };
        let line: usize = line.parse().unwrap_or(1);
        let from = file.text.split_inclusive('\n').take(line - 1).map(str::len).sum::<usize>();
        // The word itself where it stands as it is; with captures in it, the row.
        let at = file.text[from..].find(&format!("{word:?}")).map_or(from, |at| from + at);
        let span = at..file.text.len().min(at + word.len() + 2);
        let mut found = Diagnostics::new(&file.text);
        found.error(span, why, "", "");
        let found = found.finish();
        file.found.extend(found);
        checked.tables = None;
    }
}
