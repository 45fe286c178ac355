//! Lookup of names: servers and clients with different run folders, and other processes that use the abstract name.

use base::DurNs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use sys::handover::{Counter, connect, receive, send};

/// If set, the test binary is a server or a client with this name.
const NAME: &str = "TAHTI_TEST_NAME";

/// Serves under a name until its input ends. Sends each client the path of its run folder.
#[test]
#[ignore = "is started by the others"]
fn be_a_server() {
    let Ok(name) = std::env::var(NAME) else { return };
    let counter = match Counter::open(&name) {
        Ok(counter) => counter,
        Err(error) => return println!("refused: {error}"),
    };
    println!("open: {}", counter.shortfall().unwrap_or_default());
    let own = std::env::var("TAHTI_RUN").unwrap();
    loop {
        let ready = sys::poll::readable(&[counter.as_fd(), std::io::stdin().as_fd()], DurNs::from_secs(60));
        if let Some(caller) = counter.accept_anyone().unwrap() {
            send(caller.connection.as_fd(), own.as_bytes(), &[]).unwrap();
        }
        if ready[1] {
            return;
        }
    }
}

/// Connects to a name and prints the answer.
#[test]
#[ignore = "is started by the others"]
fn be_a_client() {
    let Ok(name) = std::env::var(NAME) else { return };
    let asked = connect(&name).and_then(|connection| {
        let mut bytes = [0; 4096];
        let (length, _) = receive(connection.as_fd(), &mut bytes)?.expect("an answer");
        Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
    });
    match asked {
        Ok(from) => println!("from {from}"),
        Err(error) => println!("refused: {error}"),
    }
}

/// A run folder.
struct Run(PathBuf);

impl Run {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("tahti-names-{}", std::process::id())).join(name);
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn command(&self, what: &str, name: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "--nocapture", what]).env(NAME, name).env("TAHTI_RUN", &self.0);
        command
    }

    /// The answer that a client gets.
    fn asks(&self, name: &str) -> String {
        let output = self.command("be_a_client", name).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let line = text.lines().find(|line| line.starts_with("from ") || line.starts_with("refused: "));
        line.unwrap_or_else(|| panic!("{text}")).to_owned()
    }

    fn sockets(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.0.join("_sockets")).into_iter().flatten();
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
    }

    fn answer(&self) -> String {
        format!("from {}", self.0.display())
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

struct Server {
    child: Child,
    output: BufReader<ChildStdout>,
    said: String,
}

impl Server {
    fn start(run: &Run, name: &str) -> Self {
        let mut command = run.command("be_a_server", name);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut said = String::new();
        while !said.starts_with("open: ") && !said.starts_with("refused: ") {
            said.clear();
            assert!(output.read_line(&mut said).unwrap() > 0, "it ended");
        }
        Self { child, output, said }
    }

    /// Ends the server in order.
    fn end(mut self) {
        drop(self.child.stdin.take());
        self.output.read_to_end(&mut Vec::new()).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn fresh() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("tahti-names-{}-{}/a", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

#[test]
fn servers_of_one_name_in_two_run_folders_are_found_by_the_clients_of_their_folder() {
    let (name, runs) = (fresh(), ["one", "two", "three"].map(Run::new));
    let first = Server::start(&runs[0], &name);
    let second = Server::start(&runs[1], &name);
    assert_eq!(first.said, "open: \n");
    let shortfall = &second.said;
    let expected = format!("open @{name}, which user {}, process {} (", sys::peer::own_user(), first.child.id());
    assert!(
        shortfall.starts_with("open: only processes with this run folder find ") && shortfall.contains(&expected),
        "{shortfall}"
    );
    assert_eq!(runs[0].asks(&name), runs[0].answer());
    assert_eq!(runs[1].asks(&name), runs[1].answer());
    assert_eq!(runs[2].asks(&name), runs[0].answer(), "a run without its own server finds the abstract name");
    first.end();
    assert!(runs[0].sockets().is_empty(), "{:?}", runs[0].sockets());
    assert!(runs[0].asks(&name).starts_with(&format!("refused: failed to connect to @{name}: Connection refused")));
    second.end();
}

#[test]
fn a_second_server_in_one_run_folder_is_refused_unless_the_first_was_killed() {
    let (name, run) = (fresh(), Run::new("same"));
    let mut first = Server::start(&run, &name);
    let second = Server::start(&run, &name);
    let expected = format!(
        "refused: failed to open @{name}, which user {}, process {} (",
        sys::peer::own_user(),
        first.child.id()
    );
    assert!(second.said.starts_with(&expected), "{}", second.said);
    assert_eq!(run.asks(&name), run.answer());
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    assert_eq!(run.sockets().len(), 1, "a killed server leaves its file");
    assert!(run.asks(&name).starts_with("refused: "));
    let third = Server::start(&run, &name);
    assert_eq!((third.said.as_str(), run.asks(&name)), ("open: \n", run.answer()));
    third.end();
    assert!(run.sockets().is_empty(), "{:?}", run.sockets());
}

#[test]
fn only_one_of_several_servers_that_replace_a_killed_one_opens_its_name() {
    let (name, run) = (fresh(), Run::new("race"));
    for _ in 0..5 {
        let mut killed = Server::start(&run, &name);
        killed.child.kill().unwrap();
        killed.child.wait().unwrap();
        let servers: Vec<Server> = std::thread::scope(|scope| {
            let started: Vec<_> = (0..4).map(|_| scope.spawn(|| Server::start(&run, &name))).collect();
            started.into_iter().map(|server| server.join().unwrap()).collect()
        });
        let open = servers.iter().filter(|server| server.said.starts_with("open: ")).count();
        assert_eq!((open, run.asks(&name)), (1, run.answer()));
    }
}

#[test]
fn a_taken_abstract_name_prevents_no_server_in_a_run_folder_of_any_path_length() {
    let (name, run) = (fresh(), Run::new(&"long".repeat(40)));
    assert!(run.0.as_os_str().len() > 108);
    let _squatter = Server::start(&Run::new("squatter"), &name);
    let server = Server::start(&run, &name);
    assert!(server.said.contains("only processes with this run folder find"), "{}", server.said);
    assert_eq!(run.asks(&name), run.answer());
    server.end();
}

#[test]
fn a_socket_folder_writable_by_others_is_used_neither_by_servers_nor_clients() {
    use std::os::unix::fs::PermissionsExt as _;
    let (name, run) = (fresh(), Run::new("open"));
    let folder = run.0.join("_sockets");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
    let _planted = UnixListener::bind(folder.join(name.replace('/', "%2F"))).unwrap();
    let server = Server::start(&run, &name);
    assert!(
        server.said.contains("has only an abstract socket") && server.said.contains("no other can write"),
        "{}",
        server.said
    );
    assert_eq!(run.asks(&name), run.answer());
    server.end();
    assert_eq!(run.sockets().len(), 1, "the other user's socket is kept");
    assert!(Path::new(&folder).exists());
}
