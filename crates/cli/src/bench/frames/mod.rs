//! `tahti bench frames`: what frames, barriers and variables cost, beside what the machine itself costs.

use super::cyclictest;
use super::measure::Where;
use crate::looprun::{figure_heads, figures, micros};
use base::{CpuId, CpuSet, DurNs, Histogram, MonoNs, Policy, Priority, Quantile};
use frame::{Activity, Config, Plan, Spec};
use ring::{FrameCounter, Number, VariableSpec};
use rt::frames::{Member, Runner};
use rt::{Barrier, Exports};
use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sys::clock::{mono_now, sleep_until, thread_cpu};
use sys::futex;
use sys::sched::{Scheduling, set_affinity, set_scheduling};

const PRIORITY: Priority = Priority(60);
const ROUNDS: u64 = 20_000;
/// Activities in the one minor that is measured.
const TEAM: usize = 10;
/// Its length.
const MINOR: DurNs = DurNs::from_ms(1);
/// Frame and cyclictest run in turn, so often, so that both meet the same machine.
const TURNS: i64 = 5;

/// Frames, barriers and exported variables: their cost beside the machine's own
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How long the frame runs, and cyclictest as long
    #[arg(long = "for", value_name = "TIME", default_value = "10s")]
    for_: DurNs,
    /// Leave cyclictest out
    #[arg(long)]
    no_cyclictest: bool,
}

pub(super) fn run(args: &Args) -> Result<(), String> {
    let cpus: Vec<CpuId> = sys::sched::affinity(0).map_err(|error| error.to_string())?.iter().collect();
    let cpu = *cpus.last().ok_or("no CPU to run on")?;
    println!("1,000 activities in 100 minors planned in {} us of processor time (aim: 50000)", micros(planning()?));
    println!("a variable written in {} ns of it (aim: 20)", export()?);
    match cpus.as_slice() {
        [one, two, ..] => {
            let (line, barrier) = (hand_over(*one, *two)?, barrier(*one, *two)?);
            println!(
                "a cache line handed over in {} ns; barrier of 2 threads {} ns: {:.2} x (aim: 3)",
                line.0,
                barrier.0,
                ratio(barrier, line)
            );
        }
        _ => println!("barrier not measured: it needs two CPUs, this process has one"),
    }
    let compared = !args.no_cyclictest;
    if compared {
        cyclictest::probe()?;
    }
    let mut frame = Figures::default();
    let mut beside = Histogram::new();
    let (mut chains, mut waking) = (Vec::new(), Histogram::new());
    for _ in 0..TURNS {
        if compared {
            let place = Where { cpu, place: None };
            let found = cyclictest::run(&place, MINOR, Policy::Fifo(PRIORITY), DurNs(args.for_.0 / TURNS))?;
            beside.merge(&found.hist);
        }
        let futex = futex_round_trip(cpu)?;
        let turn = chain(cpu, DurNs(args.for_.0 / TURNS))?;
        chains.push(Chain::of(&turn, futex)?);
        frame.merge(&turn);
        waking.merge(&border(cpu)?);
    }
    // The turn in the middle: the machine may be another one in each.
    chains.sort_by(|one, other| one.ratio().total_cmp(&other.ratio()));
    let chain = &chains[chains.len() / 2];
    println!("a futex round trip on CPU {cpu} takes {} us", micros(chain.futex));
    println!(
        "{TEAM} activities in one minor take {} us: {:.2} x the round trips they need (aim: 1.3)",
        micros(chain.used),
        chain.ratio()
    );
    println!("the dispatcher works at a border [us]{:>1} {}", "", figure_heads());
    println!("{:<34} {}", "its own work (aim: 2)", figures(&frame.dispatch));
    println!("{:<34} {}", "the kernel, to wake two threads", figures(&waking));
    println!("of {} minors {} were lost; {}", frame.minors, frame.lost, frame.accounts());
    println!("begin of minors of 1 ms, late [us]{:>1} {}", "", figure_heads());
    if compared {
        println!("{:<34} {}", "cyclictest, in whole us", figures(&beside));
    }
    println!("{:<34} {}", "frame", figures(&frame.late));
    frame.missing.iter().for_each(|what| println!("{what}"));
    Ok(())
}

/// Ten activities, and a futex round trip measured beside them.
struct Chain {
    used: DurNs,
    futex: DurNs,
}

impl Chain {
    fn of(turn: &Figures, futex: DurNs) -> Result<Self, String> {
        // The dispatcher's own work lies before it wakes the first activity.
        let before = median(&turn.dispatch)?.0 + median(&turn.late)?.0;
        Ok(Self { used: DurNs(MINOR.0 - median(&turn.slack)?.0 - before), futex })
    }

    /// An activity is woken, runs, wakes the next and sleeps: half a round trip each.
    fn ratio(&self) -> f64 {
        ratio(self.used, DurNs(self.futex.0 * TEAM as i64 / 2))
    }
}

fn ratio(one: DurNs, other: DurNs) -> f64 {
    one.0 as f64 / other.0.max(1) as f64
}

fn planning() -> Result<DurNs, String> {
    let activities = (0..1000).map(|n| Activity::new(&format!("a{n}"), Some(DurNs::from_us(1)), 0..100)).collect();
    let spec = Spec::new("large", vec![DurNs::from_ms(1); 100], activities);
    let begun = thread_cpu();
    let plan = Plan::admit(&spec).map_err(|refused| refused[0].to_string())?;
    let took = DurNs(thread_cpu().0 - begun.0);
    std::hint::black_box(plan);
    Ok(took)
}

fn export() -> Result<i64, String> {
    let exports = Exports::open(&format!("bench-{}", std::process::id()), 1)?;
    let spec = VariableSpec { name: "x", unit: "", first: Number::Float(0.0), safe: None };
    let index = exports.add(&spec)?;
    let rounds = 1_000_000;
    let begun = thread_cpu();
    for round in 0..rounds {
        std::hint::black_box(exports.set(index, Number::Float(round as f64), round, MonoNs(round)));
    }
    Ok((thread_cpu().0 - begun.0) / rounds as i64)
}

/// Makes the calling thread real time on a CPU.
fn place(cpu: CpuId) -> Result<(), String> {
    place_at(cpu, PRIORITY)
}

fn place_at(cpu: CpuId, priority: Priority) -> Result<(), String> {
    set_affinity(0, &CpuSet::single(cpu)).map_err(|error| error.to_string())?;
    set_scheduling(0, Scheduling { policy: Policy::Fifo(priority), reset_on_fork: true })
        .map_err(|error| error.to_string())
}

/// Runs both on threads of their own; how long one round of `mine` takes.
fn pair(
    cpus: [CpuId; 2],
    mine: impl FnOnce() + Send + 'static,
    theirs: impl FnOnce() + Send + 'static,
) -> Result<DurNs, String> {
    let both = Arc::new(AtomicU64::new(0));
    let meet = move |both: &AtomicU64| {
        both.fetch_add(1, Ordering::AcqRel);
        while both.load(Ordering::Acquire) < 2 {
            std::thread::yield_now();
        }
    };
    let other = both.clone();
    let they = std::thread::spawn(move || {
        let placed = place(cpus[1]);
        meet(&other);
        theirs();
        placed
    });
    let me = std::thread::spawn(move || {
        let placed = place(cpus[0]);
        meet(&both);
        let begun = mono_now();
        mine();
        placed.map(|()| DurNs((mono_now() - begun).0 / ROUNDS as i64))
    });
    let ended = |_| "a measuring thread ended".to_owned();
    they.join().map_err(ended)??;
    me.join().map_err(ended)?
}

/// One way of a cache line from CPU to CPU.
fn hand_over(one: CpuId, two: CpuId) -> Result<DurNs, String> {
    let line = Arc::new(AtomicU64::new(0));
    let follow = |line: Arc<AtomicU64>, odd: u64| {
        move || {
            for round in 0..ROUNDS {
                while line.load(Ordering::Acquire) != round * 2 + odd {
                    spin_loop();
                }
                line.store(round * 2 + odd + 1, Ordering::Release);
            }
        }
    };
    Ok(DurNs(pair([one, two], follow(line.clone(), 0), follow(line, 1))?.0 / 2))
}

fn barrier(one: CpuId, two: CpuId) -> Result<DurNs, String> {
    let barrier = Barrier::new(2).map_err(|error| error.to_string())?;
    let wait = |barrier: Barrier| move || (0..ROUNDS).for_each(|_| _ = barrier.wait(DurNs::from_ms(10), None));
    pair([one, two], wait(barrier.clone()), wait(barrier))
}

/// Two threads on one CPU that wake each other in turn.
fn futex_round_trip(cpu: CpuId) -> Result<DurNs, String> {
    let words = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let turn = |words: Arc<[AtomicU64; 2]>, mine: usize, first: bool| {
        move || {
            for round in 1..=ROUNDS {
                if first {
                    futex::count_up(&words[1 - mine], 1);
                }
                loop {
                    let seen = words[mine].load(Ordering::Acquire);
                    if seen >= round {
                        break;
                    }
                    futex::wait(&words[mine], seen, None);
                }
                if !first {
                    futex::count_up(&words[1 - mine], 1);
                }
            }
        }
    };
    pair([cpu, cpu], turn(words.clone(), 0, true), turn(words, 1, false))
}

/// What the kernel alone needs at a border: a thread that wakes each millisecond and wakes two that sleep below it, as a
/// dispatcher does.
fn border(cpu: CpuId) -> Result<Histogram, String> {
    const BORDERS: u64 = 2000;
    let words = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let stop = Arc::new(AtomicBool::new(false));
    let sleepers: Vec<_> = (0..2)
        .map(|mine: usize| {
            let (words, stop) = (words.clone(), stop.clone());
            std::thread::spawn(move || {
                place_at(cpu, Priority(PRIORITY.0 - 1 - mine as u8))?;
                while !stop.load(Ordering::Relaxed) {
                    words[mine].store(0, Ordering::SeqCst);
                    futex::wait(&words[mine], 0, None);
                }
                Ok::<_, String>(())
            })
        })
        .collect();
    let timing = std::thread::spawn({
        let words = words.clone();
        move || {
            place_at(cpu, PRIORITY)?;
            let (mut took, begun) = (Histogram::new(), mono_now());
            for border in 1..=BORDERS {
                sleep_until(begun + DurNs(MINOR.0 * border as i64));
                let woke = mono_now();
                words[0].store(1, Ordering::SeqCst);
                futex::wake_both(&words[0], &words[1]);
                took.record(mono_now() - woke);
            }
            Ok::<_, String>(took)
        }
    });
    let ended = |_| "a measuring thread ended".to_owned();
    let took = timing.join().map_err(ended)?;
    stop.store(true, Ordering::Relaxed);
    for (sleeper, word) in sleepers.into_iter().zip(words.iter()) {
        while !sleeper.is_finished() {
            word.store(1, Ordering::SeqCst);
            futex::wake(word);
            std::thread::yield_now();
        }
        sleeper.join().map_err(ended)??;
    }
    took
}

/// What a frame's page says.
#[derive(Default)]
struct Figures {
    slack: Histogram,
    dispatch: Histogram,
    late: Histogram,
    minors: u64,
    lost: u64,
    faults: u64,
    allocations: u64,
    missing: Vec<String>,
}

impl Figures {
    fn merge(&mut self, other: &Self) {
        self.slack.merge(&other.slack);
        self.dispatch.merge(&other.dispatch);
        self.late.merge(&other.late);
        self.minors += other.minors;
        self.lost += other.lost;
        self.faults += other.faults;
        self.allocations = self.allocations.saturating_add(other.allocations);
        self.missing.clone_from(&other.missing);
    }

    fn accounts(&self) -> String {
        format!("in the dispatcher {} page faults, {} calls of the allocator", self.faults, self.allocations)
    }
}

fn median(hist: &Histogram) -> Result<DurNs, String> {
    match hist.quantile(1, 2) {
        Quantile::At(time) => Ok(time),
        _ => Err("the frame made no minor; give it longer with --for".to_owned()),
    }
}

/// Ten activities that do nothing, in one minor of 1 ms.
fn chain(cpu: CpuId, span: DurNs) -> Result<Figures, String> {
    let name = format!("bench{}/chain", std::process::id());
    let activities = (0..TEAM).map(|n| Activity::new(&format!("a{n}"), Some(DurNs::from_us(50)), 0..1)).collect();
    let spec = Spec::new(&name, vec![MINOR], activities);
    let config =
        Config { spec, cpu: Some(cpu), priority: PRIORITY, join_within: DurNs::from_secs(20), followers: vec![] };
    let mut runner = Runner::new(config).map_err(|error| error.to_string())?;
    let stop = Arc::new(AtomicBool::new(false));
    let members: Vec<_> = (0..TEAM)
        .map(|n| {
            let (name, stop) = (name.clone(), stop.clone());
            std::thread::spawn(move || -> Result<(), String> {
                let joined = Member::join(&name, &format!("a{n}"), None, DurNs::from_secs(20));
                let mut member = joined.map_err(|error| error.to_string())?;
                while !stop.load(Ordering::Relaxed) && member.next_turn().is_some() {}
                Ok(())
            })
        })
        .collect();
    let mut missing = Vec::new();
    let until = mono_now() + span;
    while mono_now() < until && !runner.is_over() {
        runner.turn(|report| {
            if let rt::frames::Report::Missing(what) = report {
                missing.push(what.to_string());
            }
        });
    }
    let page = runner.page();
    let figures = Figures {
        slack: page.slack(0).read(),
        dispatch: page.dispatch().read(),
        late: page.late().read(),
        minors: page.counter(FrameCounter::Minors),
        lost: page.counter(FrameCounter::Lost),
        faults: page.counter(FrameCounter::PageFaults),
        allocations: page.counter(FrameCounter::Allocations),
        missing,
    };
    stop.store(true, Ordering::Relaxed);
    drop(runner);
    for member in members {
        member.join().map_err(|_| "an activity ended".to_owned())??;
    }
    Ok(figures)
}
