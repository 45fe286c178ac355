//! The example of a manager with its own driver, run as a process.

use broker::server::{Config, Event, serve};
use broker::{Client, Sending};
use msg::{Band, Code};
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

const TABLES: &str = r#"
[manager]
name = "games"

[[device]]
name = "dice"
driver = "dice"
sides = 4

[[map]]
verb = "get"
object = "game_dice"
complement = "roll"
device = "dice"
point = "roll"

[[map]]
verb = "put"
object = "game_dice"
device = "dice"
point = "roll"
"#;

/// A process that is killed when the test ends or fails.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_driver_of_another_program_is_served_and_its_refusals_are_returned() {
    let name = format!("dice-{}", std::process::id());
    let stop = Arc::new(AtomicBool::new(false));
    let (tell, events) = channel();
    let (config, stopped) = (Config { name: name.clone(), ..Config::default() }, stop.clone());
    let server = std::thread::spawn(move || serve(config, &stopped, &mut |event| drop(tell.send(event))));
    let ready = events.recv_timeout(Duration::from_secs(30)).unwrap();
    assert!(matches!(ready, Event::Ready(_)), "{ready:?}");

    let file = std::env::temp_dir().join(format!("{name}.toml"));
    std::fs::write(&file, TABLES).unwrap();
    // Cargo builds examples into the folder `examples` next to that of the tests.
    let tests: PathBuf = std::env::current_exe().unwrap().parent().unwrap().into();
    let dice = tests.parent().unwrap().join("examples/dice");
    let mut dice = Ended(Command::new(dice).arg(&file).arg(&name).stdout(Stdio::piped()).spawn().unwrap());
    let said = BufReader::new(dice.0.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    assert_eq!(said, "games serves 1 objects");

    let mut client = Client::connect(&name, "player", Band::DEFAULT).unwrap();
    let mut ask = |line: &str| client.ask(line, &Sending::default()).unwrap();
    let mut seen = [false; 4];
    for _ in 0..100 {
        let rolled = ask("get/game_dice/roll");
        assert_eq!(rolled.code, Code::Ok, "{}", rolled.text);
        seen[rolled.text.parse::<usize>().unwrap() - 1] = true;
    }
    assert_eq!(seen, [true; 4]);
    let refused = ask("put/game_dice/6");
    assert_eq!((refused.code, refused.text.as_str()), (Code::Device, "dice are rolled, not set"));

    drop(dice);
    stop.store(true, Ordering::Relaxed);
    server.join().unwrap().unwrap();
    std::fs::remove_file(file).unwrap();
}
