//! A port and a device that answers, is absent, hangs, sends garbage, closes the connection within a word, and returns.

use base::{DurNs, MonoNs};
use fieldbus::Exchange;
use fieldbus::modbus::{Failure, FrameError, Framing, Request, Response, Table, Transaction, encode};
use port::{Address, Job, Listener, Port};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

type Answer = Result<Response, Failure>;

struct Pending {
    transaction: Transaction,
    to: Sender<Result<Answer, String>>,
    latest: Option<MonoNs>,
}

impl Job for Pending {
    fn exchange(&mut self) -> &mut dyn Exchange {
        &mut self.transaction
    }
    fn latest(&self) -> Option<MonoNs> {
        self.latest
    }
    fn done(self: Box<Self>) {
        let answer = self.transaction.result().unwrap_or(Err(Failure::Closed("not over".into())));
        self.to.send(Ok(answer)).unwrap();
    }
    fn missed(self: Box<Self>, why: &str) {
        self.to.send(Err(why.to_owned())).unwrap();
    }
}

fn job(number: u16, limit: DurNs, latest: Option<MonoNs>) -> (Box<dyn Job>, Receiver<Result<Answer, String>>) {
    let request = Request::Read { table: Table::Holding, address: 7, count: 1 };
    let transaction = Transaction::new(Framing::Tcp, number, 1, request, limit).unwrap();
    let (to, answers) = channel();
    (Box::new(Pending { transaction, to, latest }), answers)
}

fn ask(port: &Port, number: u16, limit: DurNs) -> Answer {
    let (job, answers) = job(number, limit, None);
    assert!(port.submit_or_refuse(job).is_ok());
    answers.recv().unwrap().unwrap()
}

fn serve(device: impl FnOnce(TcpListener) + Send + 'static) -> (Address, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string().parse().unwrap();
    (address, std::thread::spawn(move || device(listener)))
}

/// Receives one request. Returns the number of its transaction.
fn request(stream: &mut TcpStream) -> u16 {
    let mut bytes = [0; 12];
    stream.read_exact(&mut bytes).unwrap();
    u16::from_be_bytes([bytes[0], bytes[1]])
}

fn answer(number: u16, value: u16) -> Vec<u8> {
    let [high, low] = value.to_be_bytes();
    let mut bytes = Vec::new();
    encode(Framing::Tcp, number, 1, &[3, 2, high, low], &mut bytes);
    bytes
}

const LONG: DurNs = DurNs::from_secs(60);
const SHORT: DurNs = DurNs::from_ms(30);

#[test]
fn a_port_recovers_from_late_malformed_and_interrupted_answers() {
    let (address, device) = serve(|listener| {
        let (mut stream, _) = listener.accept().unwrap();
        let number = request(&mut stream);
        stream.write_all(&answer(number, 111)).unwrap();
        // The device hangs. The answer arrives together with that of the next request.
        let late = request(&mut stream);
        let next = request(&mut stream);
        stream.write_all(&[answer(late, 222), answer(next, 333)].concat()).unwrap();
        // Garbage: the port closes the connection and opens another one.
        request(&mut stream);
        stream.write_all(b"nonsense, all of it").unwrap();
        assert_eq!(stream.read(&mut [0; 1]).unwrap_or(0), 0, "the connection is closed");
        let (mut stream, _) = listener.accept().unwrap();
        // The device closes the connection within an answer.
        let number = request(&mut stream);
        stream.write_all(&answer(number, 444)[..9]).unwrap();
        drop(stream);
        let (mut stream, _) = listener.accept().unwrap();
        let number = request(&mut stream);
        stream.write_all(&answer(number, 555)).unwrap();
    });
    let port = Port::open("plc", address, 4).unwrap();
    let value = |value| Ok(Response::Registers(vec![value]));
    assert_eq!(ask(&port, 1, LONG), value(111));
    assert_eq!(ask(&port, 2, SHORT), Err(Failure::Timeout(SHORT)));
    assert_eq!(ask(&port, 3, LONG), value(333));
    assert_eq!(ask(&port, 4, LONG), Err(Failure::Frame(FrameError::Protocol(u16::from_be_bytes(*b"ns")))));
    assert_eq!(ask(&port, 5, LONG), Err(Failure::Closed("the device closed the connection".into())));
    assert_eq!(ask(&port, 6, LONG), value(555));
    device.join().unwrap();
    while port.status().exchanges < 6 {
        std::thread::yield_now();
    }
    assert_eq!(port.status().connects, 3);
}

#[test]
fn an_absent_device_is_reported_and_used_once_it_is_present() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = listener.local_addr().unwrap();
    drop(listener);
    let port = Port::open("plc", place.to_string().parse().unwrap(), 4).unwrap();
    let Err(Failure::Closed(why)) = ask(&port, 1, LONG) else { panic!("no device listens") };
    assert!(why.contains(&place.to_string()) && why.contains("refused"), "{why}");
    while !port.status().unreachable {
        std::thread::yield_now();
    }
    assert_eq!(port.status().exchanges, 0);
    let listener = TcpListener::bind(place).unwrap();
    let device = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let number = request(&mut stream);
        stream.write_all(&answer(number, 9)).unwrap();
    });
    // The port connects again after a pause.
    let found = loop {
        match ask(&port, 2, LONG) {
            Err(Failure::Closed(_)) => {}
            found => break found,
        }
    };
    assert_eq!(found, Ok(Response::Registers(vec![9])));
    device.join().unwrap();
    // The state is updated before the next exchange.
    assert!(ask(&port, 3, LONG).is_err());
    assert_eq!(port.status().exchanges, 1);
}

#[test]
fn a_full_queue_refuses_and_a_job_that_waited_too_long_is_missed() {
    let (go, wait) = channel::<()>();
    let (address, device) = serve(move |listener| {
        let (mut stream, _) = listener.accept().unwrap();
        let number = request(&mut stream);
        wait.recv().unwrap();
        stream.write_all(&answer(number, 1)).unwrap();
    });
    let port = Port::open("plc", address, 1).unwrap();
    let (first, answers) = job(1, LONG, None);
    assert!(port.submit_or_refuse(first).is_ok());
    // As soon as the first job runs, the queue has a free place.
    let (mut late, missed) = job(2, LONG, Some(MonoNs(1)));
    while let Err(back) = port.submit_or_refuse(late) {
        late = back;
        std::thread::yield_now();
    }
    let refused = port.refused();
    assert!(port.submit_or_refuse(job(3, LONG, None).0).is_err());
    assert_eq!(port.refused(), refused + 1);
    go.send(()).unwrap();
    assert_eq!(answers.recv().unwrap(), Ok(Ok(Response::Registers(vec![1]))));
    assert_eq!(missed.recv().unwrap(), Err("the port was busy too long".to_owned()));
    device.join().unwrap();
}

#[test]
fn unsolicited_bytes_go_to_the_listener() {
    struct Hear(Sender<Vec<u8>>);
    impl Listener for Hear {
        fn handle_bytes(&mut self, _: MonoNs, bytes: &[u8]) {
            self.0.send(bytes.to_vec()).unwrap();
        }
        fn poll_timeout(&self) -> Option<MonoNs> {
            None
        }
        fn handle_timeout(&mut self, _: MonoNs) {}
        fn handle_closed(&mut self, _: MonoNs, _: &str) {
            // The test may have ended.
            let _ = self.0.send(b"closed".to_vec());
        }
    }
    let (address, device) = serve(|listener| {
        for word in [&b"beam on\n"[..], b"beam off\n"] {
            listener.accept().unwrap().0.write_all(word).unwrap();
        }
    });
    let port = Port::open("bell", address, 4).unwrap();
    let (to, heard) = channel();
    port.listen(Box::new(Hear(to)));
    let words: Vec<Vec<u8>> = (0..3).map(|_| heard.recv().unwrap()).collect();
    assert_eq!(words, [&b"beam on\n"[..], b"closed", b"beam off\n"]);
    device.join().unwrap();
    let missed = job(1, LONG, None);
    drop(port);
    drop(missed);
}

/// Asks for a register after each connect.
struct Greeter {
    number: u16,
    to: Sender<Result<Answer, String>>,
    over: Arc<AtomicBool>,
}

impl Listener for Greeter {
    fn handle_connected(&mut self) -> Option<Box<dyn Job>> {
        self.number += 1;
        let request = Request::Read { table: Table::Holding, address: 7, count: 1 };
        let transaction = Transaction::new(Framing::Tcp, self.number, 1, request, LONG).unwrap();
        Some(Box::new(Pending { transaction, to: self.to.clone(), latest: None }))
    }
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
    fn handle_bytes(&mut self, _: MonoNs, _: &[u8]) {}
    fn poll_timeout(&self) -> Option<MonoNs> {
        None
    }
    fn handle_timeout(&mut self, _: MonoNs) {}
    fn handle_closed(&mut self, _: MonoNs, _: &str) {}
}

#[test]
fn a_listener_is_called_after_each_connect_and_on_request_until_it_is_over() {
    let (next, go) = channel::<()>();
    let (address, device) = serve(move |listener| {
        // The device closes the first connection after the first answer, and is asked twice on the second.
        for numbers in [&[100][..], &[101, 7, 102]] {
            let (mut stream, _) = listener.accept().unwrap();
            for number in numbers {
                assert_eq!(request(&mut stream), *number);
                stream.write_all(&answer(*number, *number)).unwrap();
            }
            go.recv().unwrap();
        }
    });
    let port = Port::open("plc", address, 4).unwrap();
    let (to, greeted) = channel();
    let over = Arc::new(AtomicBool::new(false));
    port.listen(Box::new(Greeter { number: 99, to, over: over.clone() }));
    let answered = || greeted.recv().unwrap().unwrap().unwrap();
    assert_eq!(answered(), Response::Registers(vec![100]));
    next.send(()).unwrap();
    assert_eq!(answered(), Response::Registers(vec![101]));
    assert_eq!(ask(&port, 7, LONG), Ok(Response::Registers(vec![7])));
    port.greet_again();
    assert_eq!(answered(), Response::Registers(vec![102]));
    over.store(true, Ordering::Release);
    port.greet_again();
    // The listener is dropped.
    assert!(greeted.recv().is_err());
    next.send(()).unwrap();
    device.join().unwrap();
}

#[test]
fn a_connection_begins_at_the_local_port_of_its_address() {
    let local = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (address, device) = serve(|listener| {
        let (mut stream, from) = listener.accept().unwrap();
        let number = request(&mut stream);
        stream.write_all(&answer(number, from.port())).unwrap();
    });
    let port = Port::open("plc", format!("{address}:{local}").parse().unwrap(), 4).unwrap();
    assert_eq!(ask(&port, 1, LONG), Ok(Response::Registers(vec![local])));
    device.join().unwrap();
}

#[test]
fn an_exchange_without_an_answer_ends_when_it_is_sent() {
    struct Say(bool, Sender<()>);
    impl Exchange for Say {
        fn poll_transmit(&mut self, _: MonoNs, out: &mut Vec<u8>) {
            out.extend_from_slice(if std::mem::replace(&mut self.0, true) { b"" } else { b"on\n" });
        }
        fn handle_bytes(&mut self, _: MonoNs, _: &[u8]) {}
        fn poll_timeout(&self) -> Option<MonoNs> {
            None
        }
        fn handle_timeout(&mut self, _: MonoNs) {}
        fn handle_closed(&mut self, _: MonoNs, why: &str) {
            panic!("{why}");
        }
        fn is_over(&self) -> bool {
            self.0
        }
    }
    impl Job for Say {
        fn exchange(&mut self) -> &mut dyn Exchange {
            self
        }
        fn latest(&self) -> Option<MonoNs> {
            None
        }
        fn done(self: Box<Self>) {
            self.1.send(()).unwrap();
        }
        fn missed(self: Box<Self>, why: &str) {
            panic!("{why}");
        }
    }
    let (silent, stay) = channel::<()>();
    let (address, device) = serve(move |listener| {
        let (mut stream, _) = listener.accept().unwrap();
        let mut said = [0; 6];
        stream.read_exact(&mut said).unwrap();
        assert_eq!(&said, b"on\non\n");
        // The device sends no answer and keeps the connection open.
        stay.recv().unwrap();
    });
    let port = Port::open("mute", address, 4).unwrap();
    let (to, ends) = channel();
    for _ in 0..2 {
        assert!(port.submit_or_refuse(Box::new(Say(false, to.clone()))).is_ok());
    }
    for _ in 0..2 {
        ends.recv_timeout(std::time::Duration::from_secs(60)).expect("it ends without an answer");
    }
    silent.send(()).unwrap();
    device.join().unwrap();
}

/// Sends line after line until the connection is closed.
fn send_without_end(listener: &TcpListener) {
    let (mut stream, _) = listener.accept().unwrap();
    while stream.write_all(&b"1.25\n".repeat(4_000)).is_ok() {}
}

/// Waits for a time, ignores all received bytes, and sends the CPU time that its thread used meanwhile.
struct Wait {
    time: DurNs,
    began: Option<(MonoNs, DurNs)>,
    over: bool,
    used: Sender<DurNs>,
}

impl Exchange for Wait {
    fn poll_transmit(&mut self, now: MonoNs, _: &mut Vec<u8>) {
        self.began.get_or_insert_with(|| (now, sys::clock::thread_cpu()));
    }
    fn handle_bytes(&mut self, _: MonoNs, _: &[u8]) {}
    fn poll_timeout(&self) -> Option<MonoNs> {
        self.began.map(|(began, _)| began + self.time)
    }
    fn handle_timeout(&mut self, now: MonoNs) {
        self.over = self.poll_timeout().is_some_and(|at| at <= now);
    }
    fn handle_closed(&mut self, _: MonoNs, why: &str) {
        panic!("{why}");
    }
    fn is_over(&self) -> bool {
        self.over
    }
}

impl Job for Wait {
    fn exchange(&mut self) -> &mut dyn Exchange {
        self
    }
    fn done(self: Box<Self>) {
        let before = self.began.map(|(_, before)| before).unwrap();
        self.used.send(DurNs(sys::clock::thread_cpu().0 - before.0)).unwrap();
    }
    fn missed(self: Box<Self>, why: &str) {
        panic!("{why}");
    }
}

#[test]
fn an_exchange_ends_in_time_and_uses_less_than_half_a_cpu_while_its_device_sends_without_end() {
    let (address, device) = serve(|listener| send_without_end(&listener));
    let port = Port::open("flood", address, 4).unwrap();
    let (used, uses) = channel();
    let time = DurNs::from_secs(1);
    assert!(port.submit_or_refuse(Box::new(Wait { time, began: None, over: false, used })).is_ok());
    let used =
        uses.recv_timeout(std::time::Duration::from_secs(60)).expect("it ends although bytes arrive all the time");
    assert!(used.0 < time.0 / 2, "{used} of CPU time in {time}");
    drop(port);
    device.join().unwrap();
}
