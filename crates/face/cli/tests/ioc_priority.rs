//! The order in which an overloaded IOC serves its clients' requests.

use ca::wire::{Header, command};
use harness::circuit::{Circuit, double};
use harness::ioc::Ioc;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// Each processing increments the count: the value read back is the position of a request in the order of service.
const DATABASE: &str = "record(calc, \"count\") { field(CALC, \"VAL+1\") }\n";
/// Two bursts of a circuit, and fewer than its socket buffer holds.
const REQUESTS: usize = 700;
const LOW: usize = 20;

#[test]
fn urgent_circuits_are_served_first_and_the_others_between_them() {
    let ioc = Ioc::start(&[("count.db", DATABASE)], &["-d", "count.db"]);
    let open = |priority: u16| {
        let mut circuit = Circuit::connect_as(ioc.port, priority);
        let (count, process) = (circuit.create("count"), circuit.create("count.PROC"));
        (circuit, count, process)
    };
    let mut low: Vec<_> = (0..LOW).map(|_| open(0)).collect();
    let (mut middle, mut high) = (open(50), open(99));
    // While the server is stopped, requests wait in every socket, those of the most urgent circuit for the shortest
    // time.
    let process = Pid::from_child(&ioc.child);
    kill_process(process, Signal::STOP).unwrap();
    waitid(WaitId::Pid(process), WaitIdOptions::STOPPED).unwrap();
    for (circuit, count, process) in low.iter_mut().chain([&mut middle, &mut high]) {
        let mut requests = Vec::new();
        for _ in 0..REQUESTS {
            Header { size: 8, ..Header::bare(command::WRITE, 4, 1, *process, 1) }.write(&mut requests);
            requests.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
            Header::bare(command::READ_NOTIFY, 6, 1, *count, 1).write(&mut requests);
        }
        circuit.send_whole(&requests);
    }
    kill_process(process, Signal::CONT).unwrap();
    let places = |(circuit, ..): &mut (Circuit, u32, u32)| -> Vec<f64> {
        (0..REQUESTS).map(|_| double(&circuit.receive(command::READ_NOTIFY).1)).collect()
    };
    let (high, middle) = (places(&mut high), places(&mut middle));
    let low: Vec<Vec<f64>> = low.iter_mut().map(places).collect();
    assert_eq!(high[0], 1.0, "the most urgent client is served first");
    // A burst may end between a write and its read.
    let burst = high.iter().take_while(|place| **place < middle[0]).count() as f64;
    assert!((burst + 1.0..=burst + 2.0).contains(&middle[0]), "the next urgent next: {burst}, {}", middle[0]);
    let (first, last) = (|of: &Vec<f64>| of[0], |of: &Vec<f64>| *of.last().unwrap());
    assert!(
        low.iter().all(|low| first(low) > middle[0]),
        "no low client is served before both: {:?}",
        low.iter().map(first).collect::<Vec<_>>()
    );
    // Bursts are bounded: a less urgent client does not wait until all requests of urgent ones are answered.
    assert!(low.iter().all(|low| first(low) < last(&high)), "{high:?}");
    assert!(
        last(&high) < low.iter().map(last).fold(0.0, f64::max),
        "and the most urgent is finished before the last low client"
    );
}
