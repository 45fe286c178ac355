//! The process behind a frame: `tahti up` starts it with the frame in its environment.

use super::show;
use base::{DurNs, MonoNs};
use host::plant::FRAME;
use ring::{Cursor, FramePage};
use rt::frames::{Report, Runner};
use sys::clock::mono_now;
use sys::signal::SignalFd;

/// Who ends activities and their frame at the same moment, as a machine that shuts down does, tells them in any order. Who is
/// gone is told after this, so that an end which belongs to the frame's is not told as a fault.
const SAME_MOMENT: DurNs = DurNs::from_ms(200);
/// How long those activities are waited for that end with their frame: the plant sends signals to their processes after it.
const FAREWELL: DurNs = DurNs::from_secs(2);

pub(super) fn run() -> Result<(), String> {
    let text = std::env::var(FRAME)
        .map_err(|_| format!("{FRAME} is not set; frames are run by `tahti up`, from a plant with [[frame]]"))?;
    let config: frame::Config = serde_json::from_str(&text).map_err(|error| format!("{FRAME}: {error}"))?;
    let name = config.spec.name.clone();
    let signals = SignalFd::new(&sys::signal::END_SIGNALS).map_err(|error| error.to_string())?;
    let mut runner = Runner::new(config).map_err(|error| error.to_string())?;
    println!("frame {name} waits for its activities");
    let mut cursor = runner.page().events();
    let mut over = None;
    let mut gone: Vec<(MonoNs, String)> = Vec::new();
    while !runner.is_over() {
        runner.turn(|report| match report {
            Report::Running { missing } if missing.is_empty() => println!("frame {name} runs"),
            Report::Running { missing } => println!("frame {name} runs, without {}", missing.join(", ")),
            Report::Joined(activity, process) => println!("{activity} joined: process {process}"),
            Report::Gone(activity, true) => println!("{activity} left"),
            Report::Gone(activity, false) => gone.push((mono_now(), activity)),
            Report::Refused(why) => println!("refused: {why}"),
            Report::Missing(missing) => println!("{missing}"),
            Report::Over(why) => over = Some(why),
        });
        let now = mono_now();
        for (_, activity) in gone.extract_if(.., |(at, _)| now - *at >= SAME_MOMENT) {
            println!("{activity} is gone: its thread ended without leaving, or its process was killed");
        }
        write_events(&runner.page(), &mut cursor);
        if signals.read().map_err(|error| error.to_string())?.is_some() {
            break;
        }
    }
    runner.finish(FAREWELL);
    write_events(&runner.page(), &mut cursor);
    gone.iter().for_each(|(_, activity)| println!("{activity} ended with the frame"));
    show::summary(&runner.page()).iter().for_each(|line| println!("{line}"));
    match over {
        Some(why) => Err(format!("frame {name} ends: {why}")),
        None => Ok(()),
    }
}

/// Writes down what has happened since the last time.
fn write_events(page: &FramePage<'_>, cursor: &mut Cursor) {
    let lost = cursor.lost();
    let mut room = ring::FRAME_EVENTS;
    while let Some(event) = page.next_event(cursor).filter(|_| room > 0) {
        room -= 1;
        println!("{}", show::event_line(page, &event));
    }
    if cursor.lost() > lost {
        println!("… {} events more than could be written", cursor.lost() - lost);
    }
}
