//! Messages while each party in turn is killed by SIGKILL. Clients get exactly one reply for each request, no request
//! is executed twice unless it is marked as repeatable, and nothing is left behind.
//!
//! `TAHTI_SOAK_SECONDS` sets the duration (20); `cargo xtask soak` runs it for ten minutes. With the feature `fabric`
//! a second server, reached over links, takes part.

use base::DurNs;
use broker::{Client, ClientError, Manager, Sending};
use harness::eventually;
use msg::{Answer, Band, Code, Flags, Verb};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const TAHTI: &str = env!("CARGO_BIN_EXE_tahti");
/// Outstanding requests of a client.
const OUTSTANDING: usize = 16;
/// Interval between two kills.
const PACE: Duration = Duration::from_millis(700);
const CLIENTS: usize = 2;

fn main() {
    let words: Vec<String> = std::env::args().collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [_, "manager", server, object, file] => manage(server, object, Path::new(file)),
        [_, "client", server, name, objects, file] => ask(server, name, objects, Path::new(file)),
        // Arguments that cargo passes to every test. `--list` only lists.
        _ if words.iter().any(|word| word == "--list") => println!("soak: test"),
        _ => soak(),
    }
}

/// A manager that logs each execution and then answers. It reconnects when the server is back.
fn manage(server: &str, object: &str, file: &Path) {
    let mut executed = File::options().append(true).create(true).open(file).unwrap();
    loop {
        let mut lane = match Manager::connect(server, &format!("manager-of-{object}"), &[object], &[Band::DEFAULT]) {
            Ok(mut lanes) => lanes.remove(0),
            Err(_) => {
                std::thread::sleep(Duration::from_millis(20));
                continue;
            }
        };
        let mut count = 0u64;
        let mut handle = |asked: &msg::ManagerRequest<'_>, replies: &mut broker::Replies<'_>| {
            count += 1;
            let id = asked.request.complement.text();
            if matches!(asked.request.verb, Verb::Call | Verb::Put) {
                executed.write_all(format!("{id}\n").as_bytes()).unwrap();
            }
            // Some requests are never answered, others are answered twice.
            if count.is_multiple_of(97) {
                return;
            }
            replies.answer(asked.ticket, &Answer::ok(&id));
            if count.is_multiple_of(101) {
                replies.answer(asked.ticket, &Answer::ok("once more"));
            }
        };
        while lane.serve(DurNs::from_secs(1), &mut handle).is_ok() {}
    }
}

/// A client that sends requests until its standard input ends, and logs requests and replies.
fn ask(server: &str, name: &str, objects: &str, file: &Path) {
    let mut log = File::create(file).unwrap();
    let ended = std::thread::spawn(|| std::io::stdin().lines().count());
    let mut client = loop {
        match Client::connect(server, name, Band::DEFAULT) {
            Ok(client) => break client,
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let objects: Vec<&str> = objects.split(',').collect();
    let mut ids = BTreeMap::new();
    let mut next = 0u64;
    loop {
        let ending = ended.is_finished();
        while !ending && client.outstanding() < OUTSTANDING {
            // Every third request is marked as repeatable.
            let repeats = next.is_multiple_of(3);
            let verb = if repeats { "put" } else { "call" };
            let id = format!("{name}-{next}-{verb}");
            let line = format!("{verb}/{}_x/{id}", objects[next as usize % objects.len()]);
            let flags = if repeats { Flags::IDEMPOTENT } else { Flags::NONE };
            let sending = Sending { limit: DurNs::from_ms(400), flags, ..Sending::default() };
            next += 1;
            match client.send(&line, &sending) {
                Ok(number) => {
                    say(&mut log, &format!("sent {id}"));
                    ids.insert(number, id);
                }
                Err(ClientError::Full | ClientError::Lost) => break,
                Err(error) => panic!("{error}"),
            }
        }
        match client.next(DurNs::from_ms(100)) {
            Ok(Some(received)) => {
                let id = ids.get(&received.id).expect("a reply to a request");
                let fits = received.code != Code::Ok || received.text == *id;
                say(&mut log, &format!("reply {id} {}{}", received.code, if fits { "" } else { " of another" }));
            }
            Ok(None) | Err(ClientError::Lost) => {}
            Err(error) => panic!("{error}"),
        }
        if ending && client.outstanding() == 0 {
            say(&mut log, "end");
            return;
        }
    }
}

/// Writes a line in a single system call: a process that is killed has written all of it or nothing.
fn say(log: &mut File, line: &str) {
    log.write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// A process that is killed and restarted.
struct Party {
    name: String,
    command: Vec<String>,
    child: Child,
    killed: u32,
}

fn start(command: &[String]) -> Child {
    let mut process = Command::new(&command[0]);
    process.args(&command[1..]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    process.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

impl Party {
    fn new(name: &str, command: Vec<String>) -> Self {
        Self { name: name.to_owned(), child: start(&command), command, killed: 0 }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        let status = self.child.wait().unwrap();
        assert_eq!(status.signal(), Some(9), "{} ended early: {status}", self.name);
        self.killed += 1;
    }
}

impl Drop for Party {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// Whether an object is served and answers.
fn answers(server: &str, object: &str) -> bool {
    let Ok(mut client) = Client::connect(server, "probe", Band::DEFAULT) else { return false };
    let sending = Sending { limit: DurNs::from_ms(500), ..Sending::default() };
    client.ask(&format!("get/{object}_x/probe"), &sending).is_ok_and(|reply| reply.code == Code::Ok)
}

/// Number of shared memory segments that a process holds.
fn memories(child: &Child) -> usize {
    let folder = fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap();
    let links = folder.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    let mapped = fs::read_to_string(format!("/proc/{}/maps", child.id())).unwrap();
    links.filter(|link| link.to_string_lossy().starts_with("/memfd:tahti")).count()
        + mapped.lines().filter(|line| line.contains("/memfd:tahti")).count()
}

fn tag() -> String {
    format!("soak-{}", std::process::id())
}

/// A client with a new log for each start.
fn client(folder: &Path, at: usize, turn: u32, objects: &str) -> (Vec<String>, PathBuf) {
    let me = std::env::current_exe().unwrap();
    let name = format!("client{at}-{turn}");
    let file = folder.join(&name);
    (words(&[me.to_str().unwrap(), "client", &tag(), &name, objects, file.to_str().unwrap()]), file)
}

fn soak() {
    let seconds = std::env::var("TAHTI_SOAK_SECONDS").map_or(20, |text| text.parse().expect("a number of seconds"));
    let folder = std::env::temp_dir().join(tag());
    fs::create_dir(&folder).unwrap();
    let me = std::env::current_exe().unwrap();
    let me = me.to_str().unwrap();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let server = tag();
    let mut parties = vec![
        Party::new("server", words(&[TAHTI, "msg", "serve", "--name", &server, "--log", &path("messages.log")])),
        Party::new("manager", words(&[me, "manager", &server, "near", &path("near")])),
    ];
    let mut objects = vec!["near"];
    if cfg!(feature = "fabric") {
        let other = format!("{server}-far");
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = format!("tcp/127.0.0.1:{port}");
        let serve = ["msg", "serve", "--name", &other, "--rule", "allow hosts=other"];
        parties.push(Party::new("far server", words(&[&[TAHTI], &serve[..]].concat())));
        parties.push(Party::new("far manager", words(&[me, "manager", &other, "far", &path("far")])));
        let link = |host: &str, server: &str, side: &str| {
            words(&[TAHTI, "msg", "link", "--host", host, "--server", server, side, &address])
        };
        parties.push(Party::new("link", link("near-host", &server, "--listen")));
        parties.push(Party::new("far link", link("far-host", &other, "--connect")));
        objects.push("far");
    }
    for object in &objects {
        eventually(&format!("{object} is served"), || answers(&server, object));
    }
    eventually("the probe has disconnected", || memories(&parties[0].child) > 0);
    let quiet = {
        let mut before = usize::MAX;
        eventually("the probes have disconnected", || {
            let now = memories(&parties[0].child);
            std::mem::replace(&mut before, now) == now
        });
        before
    };
    let objects_text = objects.join(",");
    let mut logs = Vec::new();
    let first_client = parties.len();
    for at in 0..CLIENTS {
        let (command, file) = client(&folder, at, 0, &objects_text);
        parties.push(Party::new(&format!("client{at}"), command));
        logs.push((file, false));
    }

    let began = Instant::now();
    let mut victim = 0;
    while began.elapsed() < Duration::from_secs(seconds) {
        std::thread::sleep(PACE);
        let at = victim % parties.len();
        victim += 1;
        let party = &mut parties[at];
        party.kill();
        if at >= first_client {
            let (command, file) = client(&folder, at - first_client, party.killed, &objects_text);
            party.command = command;
            let mine = &mut logs.iter_mut().filter(|(file, _)| {
                file.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&party.name))
            });
            mine.next_back().unwrap().1 = true;
            logs.push((file, false));
        }
        party.child = start(&party.command);
    }

    for object in &objects {
        eventually(&format!("{object} is served again"), || answers(&server, object));
    }
    for party in parties.iter_mut().skip(first_client) {
        drop(party.child.stdin.take());
        eventually(&format!("{} ends", party.name), || party.child.try_wait().unwrap().is_some());
        assert!(party.child.wait().unwrap().success(), "{}", party.name);
    }
    // The server keeps memory for later clients: at most as much as was in use at once. A killed client and its
    // successor can overlap.
    let kept = 2 * (quiet + 2 * CLIENTS);
    eventually("the server reuses the memory of disconnected clients", || memories(&parties[0].child) <= kept);
    let killed: Vec<String> = parties.iter().map(|party| format!("{} {}", party.name, party.killed)).collect();
    assert!(victim < parties.len() || parties.iter().all(|party| party.killed > 0));
    drop(parties);
    let sockets = fs::read_to_string("/proc/net/unix").unwrap();
    assert!(!sockets.contains(&format!("@tahti-messages-{server}")), "a socket still exists");
    judge(&folder, &objects, &logs, &killed.join(", "));
    fs::remove_dir_all(&folder).unwrap();
}

fn lines(file: &Path) -> Vec<String> {
    // A client that was killed before it started has no log.
    let Ok(file) = File::open(file) else { return Vec::new() };
    BufReader::new(file).lines().map(Result::unwrap).collect()
}

/// Checks the logs of all processes together.
fn judge(folder: &Path, objects: &[&str], logs: &[(PathBuf, bool)], killed: &str) {
    let mut executed: BTreeMap<String, u32> = BTreeMap::new();
    for object in objects {
        for id in lines(&folder.join(object)) {
            *executed.entry(id).or_default() += 1;
        }
    }
    let twice: Vec<_> = executed.iter().filter(|(id, times)| id.ends_with("-call") && **times > 1).collect();
    assert!(twice.is_empty(), "executed more than once: {twice:?}");
    let mut codes: BTreeMap<String, u64> = BTreeMap::new();
    let mut unanswered = 0;
    for (file, killed) in logs {
        let lines = lines(file);
        let mut asked: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for line in &lines {
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["sent", id] => assert!(asked.insert(id, Vec::new()).is_none(), "{line}"),
                ["reply", id, code] => asked.get_mut(id).unwrap_or_else(|| panic!("{line}")).push(code),
                ["end"] => {}
                _ => panic!("{}: {line}", file.display()),
            }
        }
        assert!(*killed || lines.last().is_some_and(|last| last == "end"), "{}", file.display());
        for (id, replies) in asked {
            let times = executed.get(id).copied().unwrap_or(0);
            match replies[..] {
                [] if *killed => unanswered += 1,
                [code] => {
                    let code: Code = code.parse().unwrap();
                    *codes.entry(code.to_string()).or_default() += 1;
                    assert!(code != Code::Ok || times > 0, "{id}: OK, but it was not executed");
                    let never = !code.may_have_happened() && code != Code::Ok;
                    assert!(!never || times == 0, "{id}: {code}, but it was executed {times} times");
                }
                _ => panic!("{id}: {} replies {replies:?}", replies.len()),
            }
        }
    }
    println!("killed: {killed}");
    println!("replies: {codes:?}; unanswered because their client was killed: {unanswered}");
    assert!(
        codes["OK"] > 100 && codes["OK"] > codes.values().sum::<u64>() / 4,
        "hardly anything was served: {codes:?}"
    );
}
