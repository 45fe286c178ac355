//! What may be asked of a loop that runs, by messages: parts from files, a new calibration, the latency of its hardware.

use adaptive::Desk;
use base::{DurNs, Verb};
use broker::{Manager, ManagerLane};
use msg::{Answer, Band, Code};
use optics::matrix::{bytes_max, npy, read};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use sys::clock::{mono_now, sleep_until};

/// The object that is served.
const OBJECT: &str = "ao_calibration";
/// How often a server that is not there is looked for, and how long a look for requests waits.
const AGAIN: DurNs = DurNs::from_ms(200);
/// Parts that files hold.
const PARTS: [&str; 4] = ["reconstructor", "dark", "gain", "zeros"];
/// What `describe` says.
const DESCRIBE: &str = "put reconstructor=FILE|dark=FILE|gain=FILE|zeros=FILE: an NPY or FITS file of the loop's folder, taken over between two frames; \
                        put save: writes the four as NPY files; put run: measures everything anew; put flat: the mirror goes flat once; \
                        get latency: pokes the mirror and measures when the camera sees it";

/// The asking side of a loop, with the folder of its files.
pub(super) struct Asked {
    pub(super) desk: Desk,
    pub(super) folder: PathBuf,
}

/// Serves as long as the process lives, on a thread that is not real time.
pub(super) fn serve(mut asked: Asked, server: String) -> std::io::Result<()> {
    let serve = move || {
        let other = sys::sched::Scheduling { policy: base::Policy::OTHER, reset_on_fork: false };
        // Refused only where the class is time sharing already.
        let _ = sys::sched::set_scheduling(0, other);
        loop {
            if let Ok(mut lanes) = Manager::connect(&server, "ao", &[OBJECT], &[Band::DEFAULT]) {
                while lanes.iter_mut().all(|lane| asked.take(lane)) {}
            }
            sleep_until(mono_now() + AGAIN);
        }
    };
    std::thread::Builder::new().name("ao-messages".into()).spawn(serve).map(drop)
}

/// A refusal: whose fault, and why.
type Refused = (Code, String);

impl Asked {
    /// Whether the server is still there.
    fn take(&mut self, lane: &mut ManagerLane) -> bool {
        let served = lane.serve(AGAIN, |asked, replies| {
            let request = &asked.request;
            let dry = asked.flags.has(msg::Flags::DRY_RUN);
            let answer = match request.object.text() {
                OBJECT => self.answer(request.verb, &request.complement.text(), dry),
                other => Err((Code::NoObject, format!("{other} is not served; expected {OBJECT}"))),
            };
            match answer {
                Ok(text) => replies.answer(asked.ticket, &Answer::ok(&text)),
                Err((code, why)) => replies.answer(asked.ticket, &Answer::failed(code, &why)),
            };
        });
        served.is_ok()
    }

    fn answer(&mut self, verb: Verb, complement: &str, dry: bool) -> Result<String, Refused> {
        let device = |error: adaptive::Error| (Code::Device, error.to_string());
        match (verb, complement, complement.split_once('=')) {
            (Verb::Describe, _, _) => Ok(DESCRIBE.into()),
            (Verb::Ping, _, _) => Ok("ao".into()),
            (Verb::Get, "latency", _) if !dry => {
                let latency = self.desk.latency().map_err(device)?;
                let [mean, least, most] = latency.us;
                Ok(format!(
                    "{:.2} frames, {mean:.0} us ({least:.0} to {most:.0}, {} pokes)",
                    latency.frames, latency.pokes
                ))
            }
            (Verb::Put | Verb::Call, "run", _) if !dry => self.desk.calibrate().map_err(device),
            (Verb::Put | Verb::Call, "flat", _) if !dry => {
                self.desk.flatten();
                Ok(String::new())
            }
            (Verb::Put | Verb::Call, "save", _) if !dry => self.save(),
            (Verb::Get, "latency", _) | (Verb::Put | Verb::Call, "run" | "flat" | "save", _) => Ok(String::new()),
            (Verb::Put, _, Some((part, file))) if PARTS.contains(&part) => self.load(part, file, dry),
            (verb, complement, _) => {
                Err((Code::NoVerb, format!("{verb} {complement:?} is not known; expected {DESCRIBE}")))
            }
        }
    }

    /// Rows and columns of a part.
    fn shape(&self, part: &str) -> (usize, usize) {
        let geometry = &self.desk.spec().geometry;
        let (slopes, width) = (2 * geometry.apertures().len(), geometry.width());
        match part {
            "reconstructor" => (geometry.actuators().len(), slopes),
            "zeros" => (slopes, 1),
            _ => (width, width),
        }
    }

    /// A file of the folder, and nothing outside of it.
    fn path(&self, file: &str) -> Result<PathBuf, Refused> {
        let plain = Path::new(file).file_name().is_some_and(|name| name == file) && !file.starts_with('.');
        let wanted = "expected the name of a file of the loop's folder (--files)";
        if plain { Ok(self.folder.join(file)) } else { Err((Code::Range, format!("{file:?}: {wanted}"))) }
    }

    fn load(&mut self, part: &str, file: &str, dry: bool) -> Result<String, Refused> {
        let (rows, columns) = self.shape(part);
        let path = self.path(file)?;
        let refused = |why: String| (Code::Range, format!("{}: {why}", path.display()));
        let mut bytes = Vec::new();
        std::fs::File::open(&path)
            .and_then(|file| file.take(bytes_max(rows, columns)).read_to_end(&mut bytes))
            .map_err(|error| refused(error.to_string()))?;
        let values = read(&bytes, rows, columns).map_err(|error| refused(format!("{error} for {part}")))?;
        let mut new = self.desk.known().clone();
        match part {
            "reconstructor" => new.inverse = values,
            "dark" => new.dark = values,
            "gain" => new.gain = values,
            _ => new.zeros = values,
        }
        if !dry {
            self.desk.exchange(new).map_err(|error| (Code::Device, error.to_string()))?;
        }
        Ok(String::new())
    }

    fn save(&self) -> Result<String, Refused> {
        let known = self.desk.known();
        let values = [&known.inverse, &known.dark, &known.gain, &known.zeros];
        for (part, values) in PARTS.into_iter().zip(values) {
            let (rows, columns) = self.shape(part);
            let path = self.folder.join(format!("{part}.npy"));
            std::fs::write(&path, npy(rows, columns, values))
                .map_err(|error| (Code::Device, format!("{}: {error}", path.display())))?;
        }
        Ok(format!("{} as NPY files in {}", PARTS.join(", "), self.folder.display()))
    }
}
