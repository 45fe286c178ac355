//! Message interface of a running loop: load parts from files, calibrate again, measure the latency of the hardware.

use adaptive::Desk;
use base::{DurNs, Verb};
use broker::{Manager, ManagerLane};
use msg::{Answer, Band, Code};
use optics::matrix::{bytes_max, npy, read};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use sys::clock::{mono_now, sleep_until};

/// Name of the object that the loop serves.
const OBJECT: &str = "ao_calibration";
/// Interval between connection attempts, and maximum wait for a request.
const AGAIN: DurNs = DurNs::from_ms(200);
/// Parts of the calibration that can be loaded from files.
const PARTS: [&str; 4] = ["reconstructor", "dark", "gain", "zeros"];
/// Reply to `describe`.
const DESCRIBE: &str = "put reconstructor=FILE|dark=FILE|gain=FILE|zeros=FILE: an NPY or FITS file of the loop's folder, taken over between two frames; \
                        put save: writes the four as NPY files; put run: calibrates again; put flat: flattens the mirror once; \
                        get latency: pokes the mirror and measures when the camera sees it";

/// The non-real-time side of the loop, and the folder of its files.
pub(super) struct LoopDesk {
    pub(super) desk: Desk,
    pub(super) folder: PathBuf,
}

/// Serves requests until the process ends, on an ordinary (not real-time) thread.
pub(super) fn serve(mut asked: LoopDesk, server: String) -> std::io::Result<()> {
    let serve = move || {
        let other = sys::sched::Scheduling { policy: base::Policy::OTHER, reset_on_fork: false };
        // Fails only if the thread is in the time-sharing class already.
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

/// A refusal: the code and the reason.
type Refused = (Code, String);

impl LoopDesk {
    /// Waits for requests and answers them. Returns false if the server is gone.
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

    /// The path of a file in the loop's folder. Refuses names that lead outside of it.
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
