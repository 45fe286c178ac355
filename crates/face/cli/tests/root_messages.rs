//! A plant's message server whose bands have separate classes and CPUs.

use base::{CpuSet, DurNs, Policy, Priority};
use broker::{Client, Sending};
use harness::machine::last_cpu;
use harness::plant::Bench;
use harness::process::{Running, thread};
use harness::shield::{Shield, Spinner, interruptions, threads};
use harness::{Folder, fresh, tahti};
use msg::{Band, Code};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use sys::shm::SharedWords;

/// All tests share CPU 1: a shield with it must not affect parallel tests.
static MACHINE: Mutex<()> = Mutex::new(());

/// Clients that connect and disconnect in each round.
const CLIENTS: usize = 100;
/// Class of these clients, lower than that of the thread that keeps the band busy.
const FLEETING: Policy = Policy::Fifo(Priority(2));
const BUSY: Policy = Policy::Fifo(Priority(1));

/// Sets the calling thread's class.
fn run_as(policy: Policy) {
    sys::sched::set_scheduling(0, sys::sched::Scheduling { policy, reset_on_fork: false }).unwrap();
}

#[test]
fn bands_have_their_class_and_cpu_and_allocate_nothing_while_they_serve() {
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let (cpu, name) = (last_cpu(), format!("rt{}", std::process::id()));
    let plant = format!(
        "[messages]\nname = \"{name}\"\nrequire_rt = true\nbands = [\n\
         {{ number = \"7\", class = \"fifo:40\", cpu = \"{cpu}\" }},\n{{ number = \"6\", class = \"rr:30\" }} ]\n\
         rules = [{{ access = \"deny\", verbs = [\"call\"], objects = \"secret_*\" }}]\n\
         [[equipment]]\nname = \"supply\"\nfile = \"supply.toml\"\nserver = \"{name}\"\nafter = [\"{name}\"]\n"
    );
    let bench = Bench::new("root-messages", &plant);
    std::fs::write(
        bench.dir.join("supply.toml"),
        "[manager]\nname = \"supply\"\n\
         [[device]]\nname = \"ps_1\"\ndriver = \"power-supply\"\n\
         [[map]]\nverb = \"put\"\nobject = \"sr_ps_{n}\"\ncomplement = \"{value}A\"\ndevice = \"ps_{n}\"\npoint = \"setpoint\"\n\
         [[map]]\nverb = \"get\"\nobject = \"sr_ps_{n}\"\ncomplement = \"current\"\ndevice = \"ps_{n}\"\npoint = \"current\"\n",
    )
    .unwrap();
    bench.ok(&["up", ".", "--detach"]);
    let send = |band: &str, lines: &[&str]| {
        let words = ["msg", "send", "--server", &name, "--band", band];
        bench.run(&words.into_iter().chain(lines.iter().copied()).collect::<Vec<_>>())
    };
    bench.until("the manager serves", || send("7", &["get/sr_ps_1/current"]).status.success());

    // Name, class (1 fifo, 2 rr, 0 other), priority and CPUs of each lane, as reported by the kernel.
    let tasks = std::fs::read_dir(format!("/proc/{}/task", bench.pid(&name))).unwrap();
    let mut bands: Vec<_> = tasks
        .filter_map(|task| {
            let task = task.unwrap().path();
            let stat = std::fs::read_to_string(task.join("stat")).unwrap();
            let (head, tail) = stat.rsplit_once(") ").unwrap();
            let band = head.split_once("(band-")?.1.to_owned();
            let fields: Vec<&str> = tail.split(' ').collect();
            let status = std::fs::read_to_string(task.join("status")).unwrap();
            let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:\t")).unwrap().to_owned();
            Some((band, fields[38].to_owned(), fields[37].to_owned(), cpus))
        })
        .collect();
    bands.sort();
    assert_eq!(bands.len(), 8, "{bands:?}");
    let class = |band: usize| (bands[band].1.as_str(), bands[band].2.as_str());
    assert_eq!((class(7), bands[7].3.as_str()), (("1", "40"), cpu.as_str()), "{bands:?}");
    assert_eq!(class(6), ("2", "30"), "{bands:?}");
    assert!((0..6).all(|band| class(band) == ("0", "0") && bands[band].3 != cpu), "{bands:?}");

    let guarded = |pid: u32| threads(pid).iter().any(|(name, _)| name == "tahti-guard");
    assert!(guarded(bench.supervisor() as u32), "the supervisor guards the real-time bands of a time-sharing server");
    assert!(!guarded(bench.pid(&name) as u32), "one guard is enough");

    // Requests, replies, refusals, batches, a lock, connecting and disconnecting clients: all on lanes whose
    // allocations are counted.
    for band in ["7", "6", "0"] {
        for current in ["1A", "2A", "3A"] {
            assert!(send(band, &[&format!("put/sr_ps_1/{current}"), "get/sr_ps_1/current"]).status.success());
        }
        assert!(send(band, &["--batch", "put/sr_ps_1/4A", "get/sr_ps_1/current"]).status.success());
        assert!(send(band, &["lock/sr_ps_1", "put/sr_ps_1/5A", "unlock/sr_ps_1"]).status.success());
        assert!(!send(band, &["call/secret_1/x", "get/nobody/x", "put/sr_ps_1/x"]).status.success());
    }
    let counters = bench.ok(&["msg", "send", "--server", &name, "describe/server"]);
    assert!(counters.contains(" allocations=0 "), "{counters}");
    assert!(!counters.contains(" requests=0 "), "{counters}");
    bench.ok(&["down"]);
}

/// A message server whose band 7 is served on CPU 1.
fn serve(environment: &[(&str, &str)]) -> (Running, String) {
    let name = fresh("messages");
    let mut command = tahti();
    command.args(["msg", "serve", "--name", &name, "--band", "7=fifo:40@1", "--require-rt"]);
    command.envs(environment.iter().copied());
    (Running::until(&mut command, "serving as"), name)
}

/// Clients connect and disconnect while band 7 is busy, until a round shows that most of them do not interrupt its
/// CPU. Interrupts by other programs are counted too, but are rare during a client's connection; a client that
/// interrupts would do so each time.
fn come_and_go(name: &str) {
    let sending = Sending { limit: DurNs::from_secs(60), ..Sending::default() };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Interrupts of a sleeping lane are harmless. A busy lane would be delayed by them.
        scope.spawn(|| {
            run_as(BUSY);
            let mut client = Client::connect(name, "busy", Band::new(7).unwrap()).unwrap();
            while !over.load(Ordering::Relaxed) {
                while client.outstanding() < 100 {
                    client.send("get/nobody/x", &sending).unwrap();
                }
                client.next(DurNs::from_secs(60)).unwrap();
            }
        });
        let mut watching = Client::connect(name, "watching", Band::DEFAULT).unwrap();
        let mut rounds = Vec::new();
        for _ in 0..20 {
            let stay = || {
                let before = interruptions();
                let mut client = Client::connect(name, "fleeting", Band::DEFAULT).unwrap();
                assert_eq!(client.ask("ping/server", &sending).unwrap().code, Code::Ok);
                drop(client);
                while watching.ask("list/server", &sending).unwrap().body.windows(8).any(|part| part == b"fleeting") {}
                interruptions() > before
            };
            rounds.push(std::iter::repeat_with(stay).take(CLIENTS).filter(|interrupted| *interrupted).count());
            println!("CPU 1 was interrupted while {rounds:?} of {CLIENTS} clients came and went");
            if rounds.iter().any(|interrupted| *interrupted < CLIENTS / 2) {
                break;
            }
        }
        over.store(true, Ordering::Relaxed);
        assert!(rounds.iter().any(|interrupted| *interrupted < CLIENTS / 2), "{rounds:?} of {CLIENTS} clients each");
    });
}

#[test]
fn connecting_and_leaving_clients_do_not_interrupt_the_cpu_of_a_band() {
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    // An idle CPU is woken by row CAL on some machines, and the lane's CPU whenever it has slept.
    let _busy = Spinner::start();
    // Keeps a client's stay short whatever else runs on this machine. The server's other threads inherit this class
    // and CPU. CPU 0, because this process maps and unmaps memory for its clients, and that must not interrupt CPU 1.
    run_as(FLEETING);
    sys::sched::set_affinity(0, &CpuSet::single(0)).unwrap();
    let (server, name) = serve(&[]);
    come_and_go(&name);
    drop(server);
}

#[test]
fn another_user_may_read_but_neither_write_nor_serve() {
    const NOBODY: u32 = 65534;
    let (server, name) = serve(&[]);
    // A copy of the program in a folder where every user may run it.
    let folder = Folder::new();
    let program = folder.0.join("tahti");
    std::fs::copy(env!("CARGO_BIN_EXE_tahti"), &program).unwrap();
    let table = folder.write(
        "table.toml",
        "[manager]\nname = \"theirs\"\n[[device]]\nname = \"m\"\ndriver = \"memory\"\n\
        [[map]]\nverb = \"put\"\nobject = \"sr_m\"\ndevice = \"m\"\npoint = \"a\"\n",
    );
    let tahti = |words: &[&str]| {
        let mut command = Command::new(&program);
        command.args(words).args(["--server", &name]).uid(NOBODY).gid(NOBODY);
        command
    };
    let refused = format!("user {NOBODY} may not serve objects here; only the server's own user and root may");
    drop(Running::until(tahti(&["em", "serve"]).arg(&table), &refused));
    let listed = tahti(&["msg", "send", "list/server"]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.starts_with(&format!("tahti-msg-send uid={NOBODY} pid=")), "{listed}");
    for verb in ["put", "set", "call", "lock"] {
        let denied = tahti(&["msg", "send", &format!("{verb}/sr_m/1")]).output().unwrap();
        let said = String::from_utf8(denied.stderr).unwrap();
        assert!(said.starts_with(&format!("tahti: DENIED: no rule allows user {NOBODY} process ")), "{verb}: {said}");
    }
    drop(server);
}

/// If set, this test binary acts as a hostile client of the named server.
const STRANGER: &str = "TAHTI_TEST_STRANGER";
const ANYBODY: u32 = 65534;
/// Index of the word on which a lane sleeps.
const BELL: usize = 8;

/// The hostile client: tries to write to its read-only memory, then wakes the band without requests, and floods it
/// until it is ended.
#[test]
fn be_the_stranger() {
    let Ok(name) = std::env::var(STRANGER) else { return };
    let connection = sys::handover::connect(&broker::socket_name(&name)).unwrap();
    let hello = br#"{"version":3,"name":"stranger","bands":[7]}"#;
    assert!(sys::handover::send(connection.as_fd(), hello, &[]).unwrap());
    let (length, fds) = sys::handover::receive(connection.as_fd(), &mut [0; 4096]).unwrap().unwrap();
    let door = fds.into_iter().nth(1).unwrap_or_else(|| panic!("{length} bytes without a descriptor"));
    let mapped = SharedWords::attach(door.try_clone().unwrap()).is_ok();
    let path = format!("/proc/self/fd/{}", door.as_raw_fd());
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path);
    let written = file.is_ok_and(|file| file.write_at(&[1; 8], 8 * BELL as u64).is_ok());
    println!("mapped={mapped} written={written}");
    let words = SharedWords::attach_read_only(door).unwrap();
    let mut client = Client::connect(&name, "flood", Band::new(7).unwrap()).unwrap();
    println!("floods");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                sys::futex::wake(&words.words()[BELL]);
            }
        });
        loop {
            while client.send("get/nobody/x", &Sending::default()).is_ok() {}
            client.flush();
            while client.next(DurNs::from_ms(1)).is_ok_and(|received| received.is_some()) {}
        }
    });
}

#[test]
fn another_user_cannot_damage_a_band_and_leaves_a_quarter_of_its_cpu_to_others() {
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let (server, name) = serve(&[]);
    let folder = Folder::new();
    let program = folder.0.join("test");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let mut stranger = Command::new(&program);
    stranger.args(["--exact", "be_the_stranger", "--nocapture"]).env(STRANGER, &name);
    let stranger = Running::until(stranger.uid(ANYBODY).gid(ANYBODY), "mapped=false written=false");
    stranger.hears("floods");
    let band = thread(server.child.id(), "band-7").unwrap();
    let burnt = || -> f64 {
        let account = std::fs::read_to_string(band.join("schedstat")).unwrap();
        account.split(' ').next().unwrap().parse().unwrap()
    };
    let (began, before) = (sys::clock::mono_now(), burnt());
    sys::clock::sleep_until(began + DurNs::from_secs(3));
    let share = (burnt() - before) / (sys::clock::mono_now() - began).0 as f64;
    println!("band 7 burns {:.1} % of its CPU", share * 100.0);
    // The limit allows for one late check of its CPU account, and the CPU time that it uses until then.
    assert!(share < 0.8, "{share}");
    let ask = |line: &str| {
        let output = tahti().args(["msg", "send", "--server", &name, "--band", "7", line]).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(ask("ping/server").trim_end(), name, "others are served in the meantime");
    let tid = band.file_name().unwrap().to_str().unwrap().parse().unwrap();
    let policy = sys::sched::scheduling(tid).unwrap().policy;
    assert_eq!(policy, Policy::Fifo(Priority(40)), "it was not demoted");
    assert!(
        threads(server.child.id()).iter().any(|(name, _)| name == "tahti-guard"),
        "the server has its own guard without a supervisor"
    );
    drop(stranger);
    println!("{}", ask("describe/server"));
    drop(server);
}

#[test]
fn a_band_runs_in_the_shield_and_the_rest_of_its_server_outside() {
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let shield = Shield::apply();
    if shield.state.contains("cgroup v2") {
        println!("not tested: where the shield is a partition of cgroup v2, a process is in it with all its threads");
        return;
    }
    let (server, name) = serve(&[("TAHTI_RUN", shield.run.to_str().unwrap())]);
    let (band, others): (Vec<_>, Vec<_>) =
        threads(server.child.id()).into_iter().partition(|(name, _)| name == "band-7");
    assert_eq!(band, [("band-7".to_owned(), "1".to_owned())]);
    assert!(others.len() >= 8 && others.iter().all(|(_, cpus)| cpus == "0"), "{others:?}");
    assert!(tahti().args(["msg", "send", "--server", &name, "--band", "7", "ping/server"]).status().unwrap().success());
    drop(server);
}
