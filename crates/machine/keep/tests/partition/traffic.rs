//! Traffic classes of network devices on a real kernel whose queueing disciplines are modules: HTB with each kind of queue,
//! also together with disciplines that order by time (taprio, etf) and that disturb (netem).

use super::{dies, folder, machine, run_inside, state, turn};
use host::partition::Lack;
use host::plant::{Network, Partition, Queue};
use keep::partition::{ground, lacking, lower, raise};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Child, Command, Stdio};

fn sh(script: &str) -> String {
    let output = Command::new("sh").args(["-ec", script]).output().unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A link to another network namespace, removed on drop: 10.9.0.1 here on `tahti0`, 10.9.0.2 there.
struct Link;

impl Link {
    fn new() -> Self {
        sh("ip netns add tahti; \
            ip link add tahti0 numtxqueues 2 type veth peer name tahti1 netns tahti numrxqueues 2; \
            ip addr add 10.9.0.1/24 dev tahti0; ip link set tahti0 up; \
            ip -n tahti addr add 10.9.0.2/24 dev tahti1; ip -n tahti link set tahti1 up; \
            ip neigh add 10.9.0.2 lladdr $(ip netns exec tahti cat /sys/class/net/tahti1/address) dev tahti0 nud permanent; \
            ip neigh add 10.9.0.3 lladdr 02:00:00:00:00:03 dev tahti0 nud permanent");
        Self
    }

    fn disciplines(&self) -> String {
        sh("tc qdisc show dev tahti0")
    }

    /// Bytes received at the other end.
    fn arrived(&self) -> u64 {
        sh("ip netns exec tahti cat /sys/class/net/tahti1/statistics/rx_bytes").trim().parse().unwrap()
    }

    /// Starts a Python program at the other end and waits until it reports that it is ready.
    fn there(&self, program: &str) -> Child {
        let mut child = Command::new("ip");
        child.args(["netns", "exec", "tahti", "python3", "-c", program]).stdout(Stdio::piped());
        let mut child = child.spawn().unwrap();
        let mut ready = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
        assert_eq!(&ready, b"ready\n");
        child
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["link", "del", "tahti0"]).status();
        let _ = Command::new("ip").args(["netns", "del", "tahti"]).status();
    }
}

/// A network namespace that reaches [`Link`]'s other end through this host, over a link that delays and loses packets.
struct Far;

impl Far {
    fn new() -> Self {
        sh("ip netns add far; ip link add tahti2 type veth peer name tahti3 netns far; \
            ip addr add 10.8.0.1/24 dev tahti2; ip link set tahti2 up; \
            ip -n far addr add 10.8.0.2/24 dev tahti3; ip -n far link set tahti3 up; ip -n far route add default via 10.8.0.1; \
            ip netns exec far tc qdisc replace dev tahti3 root netem delay 30ms 20ms loss 10%; \
            echo 1 > /proc/sys/net/ipv4/ip_forward");
        Self
    }

    /// Runs a Python program there to its end.
    fn run(&self, program: &str) {
        let status = Command::new("ip").args(["netns", "exec", "far", "python3", "-c", program]).status().unwrap();
        assert!(status.success());
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["link", "del", "tahti2"]).status();
        let _ = Command::new("ip").args(["netns", "del", "far"]).status();
    }
}

/// The numbers that a program printed until its end.
fn numbers(child: Child) -> Vec<i64> {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().lines().map(|line| line.parse().unwrap()).collect()
}

fn partition(queue: Queue) -> Vec<Partition> {
    let network = Network {
        device: "tahti0".into(),
        link: "200Mbit".parse().unwrap(),
        rate: "2Mbit".parse().unwrap(),
        max: Some("2Mbit".parse().unwrap()),
        delay: Some(base::DurNs::from_ms(200)),
        queue,
    };
    vec![Partition { name: "net".into(), network: Some(network), required: true, ..Partition::default() }]
}

/// Sends to an address without a receiver, as fast as possible, for 4 s.
const FLOOD: &str = "timeout 4 bash -c 'exec 3>/dev/udp/10.9.0.3/9; exec dd if=/dev/zero bs=1400 >&3' || true";

#[test]
fn a_flood_of_datagrams_stays_within_its_class_and_the_device_is_restored() {
    let (_turn, link) = (turn(), Link::new());
    let (before, dir) = ((state(), link.disciplines()), folder("network"));
    for queue in Queue::ALL {
        let wanted = partition(queue);
        for writes in 0.. {
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                raise(&mut dies(writes), &dir, &wanted, ground(&wanted), false).map(drop)
            }));
            if let Ok(raised) = outcome {
                raised.unwrap();
                break;
            }
            assert_eq!(lower(&mut machine(), &dir).unwrap().left, [] as [String; 0]);
            assert_eq!((state(), link.disciplines()), before, "{queue:?} killed after {writes} writes");
        }
        let raised = raise(&mut machine(), &dir, &wanted, ground(&wanted), false).unwrap();
        assert_eq!(raised.partitions.drift(&mut machine()).unwrap(), []);
        assert!(link.disciplines().contains(&format!("qdisc {} 7a78: parent 7a68:10 ", queue.kind())));
        assert!(sh("tc class show dev tahti0").contains("class htb 7a68:10 parent 7a68:1"));
        let [group] = &raised.partitions.dirs("net")[..] else { panic!("version 2 has one directory") };
        let (first, took) = (link.arrived(), run_inside(group, FLOOD));
        let sent = link.arrived() - first;
        // The rate, the initial content of the bucket (64 KiB), and the content of the queue.
        let most = took.as_secs_f64() * 2e6 / 8.0 * 1.1 + 2e5;
        assert!(sent > 50_000 && (sent as f64) < most, "{queue:?}: {sent} bytes in {took:?}, at most {most}");
        assert_eq!(lower(&mut machine(), &dir).unwrap().left, [] as [String; 0]);
        assert_eq!((state(), link.disciplines()), before);
    }
}

/// Median delay of a sparse connection's datagrams during a flood from the same partition.
fn beside_a_flood(link: &Link, group: &Path) -> i64 {
    let there = link.there(
        "import socket,struct,time\n\
         s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.bind(('10.9.0.2',10)); s.settimeout(20); print('ready',flush=True)\n\
         while True:\n \
          sent=struct.unpack('q',s.recv(8))[0]\n \
          if sent==0: break\n \
          print(time.monotonic_ns()-sent)\n",
    );
    // The flood lasts until the last datagram is sent, however slowly the programs start, and has a queue before the first one.
    let flood = "bash -c 'exec 3>/dev/udp/10.9.0.3/9; exec dd if=/dev/zero bs=1400 >&3' & flood=$!; \
         until tc -s -j qdisc show dev tahti0 | grep -Eq '.backlog.: *[0-9]{4}'; do sleep 0.1; done";
    let socket = "import socket,struct,time\n\
         s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); to=('10.9.0.2',10)\n";
    let sparse = "for i in range(30):\n s.sendto(struct.pack('q',time.monotonic_ns()),to); time.sleep(0.05)\n";
    // Sent after the queue has been drained, and repeatedly, as any may be lost.
    let end = "time.sleep(3)\nfor i in range(10):\n s.sendto(bytes(8),to); time.sleep(0.05)\n";
    let python = |program: &str| format!("python3 -c \"{socket}{program}\"");
    run_inside(group, &format!("{flood}; {}; kill $flood; {}; wait", python(sparse), python(end)));
    let mut delays = numbers(there);
    delays.sort_unstable();
    assert!(!delays.is_empty(), "no datagram arrived");
    delays[delays.len() / 2]
}

#[test]
fn a_flood_delays_other_packets_of_its_partition_less_with_a_fair_queue() {
    let (_turn, link, dir) = (turn(), Link::new(), folder("turns"));
    let delays = Queue::ALL.map(|queue| {
        let wanted = partition(queue);
        let raised = raise(&mut machine(), &dir, &wanted, ground(&wanted), false).unwrap();
        let [group] = &raised.partitions.dirs("net")[..] else { panic!("version 2 has one directory") };
        let median = beside_a_flood(&link, group);
        assert_eq!(lower(&mut machine(), &dir).unwrap().left, [] as [String; 0]);
        median
    });
    println!("median delays during a flood, in ns: fifo, fq_codel, cake: {delays:?}");
    let [fifo, others @ ..] = delays;
    // The flood's queue is 200 ms long. A slow host adds the same to each delay.
    assert!(fifo > 100_000_000, "{delays:?}");
    assert!(others.iter().all(|delay| *delay < fifo / 2), "{delays:?}");
}

#[test]
fn datagrams_from_a_bad_link_continue_in_their_class_and_a_time_ordered_device_is_unchanged() {
    let (_turn, link, dir) = (turn(), Link::new(), folder("gates"));
    let far = Far::new();
    // Of each 400 ms, the first half is for interactive traffic, the second for the rest.
    sh(
        "tc qdisc replace dev tahti0 parent root handle 100 taprio num_tc 2 map 0 0 0 0 0 0 1 queues 1@0 1@1 base-time 0 \
          sched-entry S 02 200000000 sched-entry S 01 200000000 clockid CLOCK_REALTIME",
    );
    let there = link.there(
        "import socket,struct\n\
         s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.setsockopt(socket.SOL_SOCKET,35,1); s.bind(('10.9.0.2',10)); s.settimeout(20)\n\
         print('ready',flush=True)\n\
         while True:\n \
          data,cmsg,_,_=s.recvmsg(8,64)\n \
          if data==b'end': break\n \
          a,b=struct.unpack('qq',cmsg[0][2]); print(a*1000000000+b)\n",
    );
    let flood = "import socket,time\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n\
                 while True:\n s.sendto(bytes(1400),('10.9.0.3',9)); time.sleep(0.002)\n";
    let mut flood = Command::new("python3").args(["-c", flood]).spawn().unwrap();
    far.run(
        "import socket,time\n\
         s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.setsockopt(socket.IPPROTO_IP,socket.IP_TOS,16)\n\
         for i in range(300):\n s.sendto(b'a',('10.9.0.2',10)); time.sleep(0.01)\n\
         time.sleep(1)\n\
         for i in range(20):\n s.sendto(b'end',('10.9.0.2',10)); time.sleep(0.1)\n",
    );
    flood.kill().unwrap();
    flood.wait().unwrap();
    let arrived = numbers(there);
    assert!(arrived.len() > 200, "{} of 300 arrived", arrived.len());
    let inside = arrived.iter().filter(|at| **at % 400_000_000 < 200_000_000).count();
    println!("{inside} of {} came in their window", arrived.len());
    // Half of the packets reach the gate outside the window. A host that stops the guest between gate and time stamp moves some.
    assert!(inside * 100 >= arrived.len() * 95, "{inside} of {} in their window", arrived.len());
    let (before, wanted) = ((state(), link.disciplines()), partition(Queue::Fifo));
    let lacks = lacking(&ground(&wanted), &wanted[0], &[]);
    let taken = Lack::Traffic { device: "tahti0".into(), kind: "taprio".into(), number: 0x100 };
    assert!(lacks.contains(&taken), "{lacks:?}");
    assert!(raise(&mut machine(), &dir, &wanted, ground(&wanted), false).is_err());
    assert_eq!((state(), link.disciplines()), before);
}

#[test]
fn datagrams_with_a_transmit_time_leave_in_its_order_and_not_earlier() {
    let (_turn, link) = (turn(), Link::new());
    sh("tc qdisc replace dev tahti0 root etf clockid CLOCK_TAI delta 50000000");
    let there = link.there(
        "import socket,struct,time\n\
         s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.setsockopt(socket.SOL_SOCKET,35,1); s.bind(('10.9.0.2',10)); s.settimeout(20)\n\
         print('ready',flush=True)\n\
         tai=time.clock_gettime_ns(11)-time.time_ns()\n\
         try:\n \
          while True:\n  \
           data,cmsg,_,_=s.recvmsg(8,64)\n  \
           s.settimeout(3)\n  \
           a,b=struct.unpack('qq',cmsg[0][2]); at=struct.unpack('q',data)[0]; print(a*1000000000+b+tai-at); print(at)\n\
         except TimeoutError: pass\n",
    );
    // Send the last one first.
    sh("python3 -c \"import socket,struct,time\n\
        s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.setsockopt(socket.SOL_SOCKET,61,struct.pack('iI',11,0)); s.connect(('10.9.0.2',10))\n\
        begin=time.clock_gettime_ns(11)+1000000000\n\
        for i in reversed(range(50)):\n at=begin+i*10000000; s.sendmsg([struct.pack('q',at)],[(socket.SOL_SOCKET,61,struct.pack('Q',at))])\n\"");
    let seen = numbers(there);
    let pairs: Vec<(i64, i64)> = seen.chunks(2).map(|pair| (pair[0], pair[1])).collect();
    // The kernel drops packets whose time has passed, which happens if the host stops the guest.
    assert!(pairs.len() > 25, "{} of 50 arrived", pairs.len());
    assert!(pairs.windows(2).all(|pair| pair[0].1 < pair[1].1), "their order changed: {pairs:?}");
    // The kernel looks ahead by up to `delta`. The clocks of the stamp and of the program were read one after the other.
    assert!(pairs.iter().all(|(behind, _)| *behind > -51_000_000), "{pairs:?}");
}
