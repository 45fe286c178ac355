//! Messages between three hosts: network namespaces of this machine on a private bridge, with links cut and restored.

use base::DurNs;
use broker::server::{Config, serve};
use broker::{Client, ClientError, Manager, Sending};
use harness::network::{Namespace, ip};
use harness::{PATIENCE, eventually};
use msg::{Answer, Band, Code};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Largest body in this test, in bytes.
const BODIES: u64 = 1 << 20;
const TAHTI: &str = env!("CARGO_BIN_EXE_tahti");

/// The tahti program within a namespace.
fn tahti_in(space: &Namespace, args: &[&str]) -> Command {
    let mut likeness = Command::new(TAHTI);
    likeness.args(args);
    space.command(&likeness)
}

/// A tahti process, killed on drop. Its output is kept.
struct Running {
    child: Child,
    said: Arc<Mutex<Vec<String>>>,
}

impl Running {
    fn new(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let (stderr, said) = (BufReader::new(child.stderr.take().unwrap()), Arc::<Mutex<Vec<String>>>::default());
        let lines = said.clone();
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                eprintln!("| {line}");
                lines.lock().unwrap().push(line);
            }
        });
        Self { child, said }
    }

    fn has_said(&self, what: &str) -> bool {
        self.said.lock().unwrap().iter().any(|line| line.contains(what))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A host: its message server, its manager, its link. All hosts here have one run folder, so each server is named
/// like its host.
struct Host {
    space: Arc<Namespace>,
    name: &'static str,
    link: Option<Running>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Host {
    /// `number` is the host's address on the bridge in `hub`; the host serves `object`.
    fn new(hub: &Namespace, number: u8, name: &'static str, object: &'static str) -> Self {
        let space = Arc::new(Namespace::new(name));
        let (inside, outside) = (&space.0, format!("veth{number}"));
        ip(&format!("-n {} link add {outside} type veth peer name eth0 netns {inside}", hub.0));
        ip(&format!("-n {} link set {outside} master bridge up", hub.0));
        ip(&format!("-n {inside} addr add 10.77.0.{number}/24 dev eth0"));
        ip(&format!("-n {inside} link set eth0 up"));
        let stop = Arc::new(AtomicBool::new(false));
        // Other hosts may only read, unless a rule allows more. Here one rule is for one object, the other for one
        // host.
        let rules = ["allow hosts=other objects=*_open verbs=put", "allow hosts=c objects=*_shut verbs=put"];
        let rules = rules.map(|rule| rule.parse().unwrap()).into();
        let config = Config { name: name.into(), rules, ..Config::default() };
        let (serving, ended) = (space.clone(), stop.clone());
        let server = std::thread::spawn(move || {
            serving.enter();
            serve(config, &ended, &mut |_| {}).unwrap();
        });
        let (managing, ended) = (space.clone(), stop.clone());
        let manager = std::thread::spawn(move || {
            managing.enter();
            manage(name, object, &ended);
        });
        Self { space, name, link: None, stop, threads: vec![server, manager] }
    }

    fn link(&mut self, args: &[&str]) {
        let mut all = vec!["msg", "link", "--server", self.name, "--host", self.name, "--bodies", "1MiB"];
        all.extend(args);
        self.link = Some(Running::new(tahti_in(&self.space, &all)));
    }

    fn linked(&self) -> &Running {
        self.link.as_ref().unwrap()
    }

    fn send(&self, args: &[&str]) -> Output {
        let mut all = vec!["msg", "send", "--server", self.name];
        all.extend(args);
        tahti_in(&self.space, &all).output().unwrap()
    }

    /// Output of a command on either stream.
    fn ask(&self, args: &[&str]) -> String {
        let Output { stdout, stderr, .. } = self.send(args);
        format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr)).trim_end().to_owned()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.link = None;
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Serves `object` and all names that extend it: `…_mute` never answers, all others echo the sender and the request.
fn manage(server: &str, object: &str, stop: &AtomicBool) {
    let began = Instant::now();
    let mut lanes = loop {
        match Manager::with_bodies(server, "equipment", &[object], &[Band::DEFAULT], BODIES) {
            Ok(lanes) => break lanes,
            Err(ClientError::System(_)) if began.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(10)),
            Err(error) => panic!("{error}"),
        }
    };
    while !stop.load(Ordering::Relaxed) {
        let served = lanes[0].serve(DurNs::from_ms(50), |asked, replies| {
            if !asked.request.object.text().ends_with("_mute") {
                let text = format!("{} for uid {} of host {}", asked.request, asked.subject.uid, asked.subject.host);
                replies.answer(asked.ticket, &Answer { body: asked.body, ..Answer::ok(&text) });
            }
        });
        if served.is_err() {
            return;
        }
    }
}

#[test]
fn hosts_send_requests_to_each_other_and_a_cut_link_is_a_reply_that_names_the_host() {
    let hub = Namespace::new("hub");
    ip(&format!("-n {} link add bridge type bridge", hub.0));
    ip(&format!("-n {} link set bridge up", hub.0));
    let mut a = Host::new(&hub, 1, "a", "bl_35");
    let mut b = Host::new(&hub, 2, "b", "sr_mag");
    let mut c = Host::new(&hub, 3, "c", "sr_rf");
    a.link(&["--listen", "tcp/10.77.0.1:7447"]);
    b.link(&["--listen", "tcp/10.77.0.2:7447", "--connect", "tcp/10.77.0.1:7447"]);
    c.link(&["--listen", "tcp/10.77.0.3:7447", "--connect", "tcp/10.77.0.1:7447"]);

    // Each host learns which objects the others serve. b and c were not configured with each other's address.
    for (host, line, object) in [(&a, "sr_mag", "b"), (&b, "sr_rf", "c"), (&c, "sr_mag", "b"), (&c, "bl_35", "a")] {
        eventually(&format!("{} learns what {object} serves", host.name), || {
            host.ask(&[&format!("get/{line}_x/value")]).starts_with(&format!("get/{line}_x/value for uid 0 of host "))
        });
    }
    assert!(a.linked().has_said("host b serves sr_mag"));

    // The rules of the receiving host apply.
    let denied = a.ask(&["put/sr_mag_shut/1A"]);
    assert!(denied.starts_with("tahti: DENIED: no rule allows user 0 process "), "{denied}");
    assert!(denied.contains(" host a to put sr_mag_shut"), "{denied}");
    let done = c.ask(&["put/sr_mag_shut/1A"]);
    assert!(done.starts_with("put/sr_mag_shut/1A for uid 0 of host "), "{done}");
    let done = a.ask(&["put/sr_mag_open/1A"]);
    assert!(done.starts_with("put/sr_mag_open/1A for uid 0 of host 1"), "{done}");
    // A silent manager is named by its own host. (On a busy machine a hop before it may report the timeout first.)
    eventually("the silent manager is named", || {
        let silent = a.ask(&["--timeout", "600ms", "get/sr_mag_mute/value"]);
        silent.starts_with("tahti: TIMEOUT: manager equipment: no answer within")
    });

    // A request that came from a third host, or by ZeroMQ, is not forwarded.
    let space = a.space.clone();
    let third = std::thread::spawn(move || {
        space.enter();
        for host in ["c", broker::zmq::HOST] {
            let mut client = Client::for_host("a", "stranger", Band::DEFAULT, host, 0).unwrap();
            let reply = client.ask("get/sr_mag_x/value", &Sending::default()).unwrap();
            let why = "host b is one hop further; hosts ask each other directly";
            assert_eq!((reply.code, &*reply.text), (Code::NoObject, why), "{host}");
        }
    });
    third.join().unwrap();

    // Large bodies in both directions, up to the limit of the link.
    let space = a.space.clone();
    let large = std::thread::spawn(move || {
        space.enter();
        let mut client = Client::with_pool("a", "camera", Band::DEFAULT, 8 << 20).unwrap();
        for bytes in [20_000, BODIES as usize, BODIES as usize + 1] {
            let body: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
            let limit = DurNs::from_secs(60);
            let reply =
                client.ask("get/sr_mag_x/value", &Sending { limit, body: &body, ..Sending::default() }).unwrap();
            match bytes as u64 > BODIES {
                true => assert_eq!(reply.code, Code::Malformed, "{}", reply.text),
                false => {
                    assert!(reply.code == Code::Ok && reply.body == body, "{bytes}: {} {}", reply.code, reply.text)
                }
            }
        }
    });
    large.join().unwrap();

    // A cut link: each request is answered once, in time, and the answer names the lost host.
    ip(&format!("-n {} link set veth2 down", hub.0));
    let lines: Vec<String> = (0..100).map(|at| format!("get/sr_mag_{at}/value")).collect();
    let mut words = vec!["--async", "--timeout", "500ms"];
    words.extend(lines.iter().map(String::as_str));
    eventually("each peer reports the lost host", || {
        let cut = a.ask(&words);
        assert_eq!(cut.lines().count(), 100, "{cut}");
        cut.lines().filter(|line| line.contains("TIMEOUT: host b: no answer within")).count() == 100
    });
    assert!(a.ask(&["get/sr_rf_x/value"]).contains("of host"), "c is not affected");
    ip(&format!("-n {} link set veth2 up", hub.0));
    eventually("the link is restored", || a.ask(&["--timeout", "500ms", "get/sr_mag_x/value"]).contains("of host"));

    // When a link process dies, its objects disappear. They return with it.
    b.link.as_mut().unwrap().child.kill().unwrap();
    eventually("a detects the loss of b", || a.ask(&["get/sr_mag_x/value"]).starts_with("tahti: NO_OBJECT"));
    b.link(&["--listen", "tcp/10.77.0.2:7447", "--connect", "tcp/10.77.0.1:7447"]);
    eventually("b is back", || a.ask(&["get/sr_mag_x/value"]).contains("of host"));
    eventually("c detects it too", || c.ask(&["get/sr_mag_x/value"]).contains("of host"));
}
