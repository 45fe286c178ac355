//! Hand-made ring buffers in the kernel's format: samples, and mappings, forks and execs in between.

use profile::{Cut, Files, Profile, ProfileData, Source};
use std::fs::File;
use trace::Symbols;

/// Uses names and files of the test program for all processes.
struct Own;

impl Files for Own {
    fn open(&mut self, _pid: i32, path: &str, _file: (u32, u32, u64)) -> Option<Box<dyn Source>> {
        let own = std::env::current_exe().ok()?;
        (path == "/own").then(|| Box::new(File::open(own).unwrap()) as Box<dyn Source>)
    }

    fn debug(&mut self, _build_id: &[u8]) -> Option<Box<dyn Source>> {
        None
    }

    fn made(&mut self, pid: i32) -> Option<String> {
        (pid == 7).then(|| "5000 100 old\n5000 80 compiled one\nrubbish\n".to_owned())
    }
}

fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = kind.to_ne_bytes().to_vec();
    bytes.extend(misc.to_ne_bytes());
    bytes.extend((body.len() as u16 + 8).to_ne_bytes());
    bytes.extend(body);
    bytes
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn ids(ids: &[i32]) -> Vec<u8> {
    ids.iter().flat_map(|id| id.to_ne_bytes()).collect()
}

/// A record that is not a sample. The text is padded to whole words; thread and time follow.
fn other(kind: u32, misc: u16, front: Vec<u8>, text: &str, at: u64) -> Vec<u8> {
    let mut body = front;
    if !text.is_empty() {
        body.extend(text.as_bytes());
        body.resize((body.len() + 8) / 8 * 8, 0);
    }
    body.extend(words(&[0, at]));
    record(kind, misc, &body)
}

fn map(pid: i32, start: u64, bytes: u64, path: &str, at: u64) -> Vec<u8> {
    let front = [ids(&[pid, pid]), words(&[start, bytes, 0, 0, 0, 0, 0])].concat();
    // Device (two halves), number, generation, protection: four words follow the offset.
    other(10, 0, front[..front.len() - 8].to_vec(), path, at)
}

fn sample(pid: i32, tid: i32, at: u64, chain: &[u64]) -> Vec<u8> {
    let body = [words(&[0]), ids(&[pid, tid]), words(&[at, 1_000_000, chain.len() as u64]), words(chain)].concat();
    record(9, 0, &body)
}

const USER: u64 = -512i64 as u64;
const KERNEL: u64 = -128i64 as u64;

fn found(rings: &[Vec<u8>]) -> ProfileData {
    let kernel = Symbols::parse("ffffffff81000000 T entry\nffffffff81000100 T work\nffffffff81000200 T end\n");
    let mut profile = Profile::new(kernel, false);
    rings.iter().for_each(|ring| profile.take(ring));
    profile.found(&mut Own)
}

#[test]
fn a_chain_of_kernel_and_user_addresses_is_a_stack_from_the_outermost_inwards() {
    let chain = [KERNEL, 0xffff_ffff_8100_0110, 0xffff_ffff_8100_0100, USER, 0x5010, 0x5081];
    let ring =
        [map(7, 0x5000, 0x1000, "//anon", 1), other(3, 0, ids(&[7, 8]), "worker", 2), sample(7, 8, 3, &chain)].concat();
    // A return address right after a function belongs to it: the call was its last instruction.
    assert_eq!(found(&[ring]).folded(), "worker;[unknown];compiled one;entry_[k];work_[k] 1\n");
}

#[test]
fn code_in_shared_anonymous_memory_has_the_names_of_its_symbol_map() {
    for path in ["/dev/zero (deleted)", "/memfd:jit (deleted)", "/SYSV00000000 (deleted)"] {
        let ring = [map(7, 0x5000, 0x1000, path, 1), sample(7, 7, 2, &[USER, 0x5010])].concat();
        assert_eq!(found(&[ring]).folded(), "thread 7;compiled one 1\n", "{path}");
    }
}

#[test]
fn names_of_threads_have_no_control_characters() {
    let ring = [other(3, 0, ids(&[7, 7]), "a\x1b[31mb\nc", 1), sample(7, 7, 2, &[USER, 0x5010])].concat();
    assert!(found(&[ring]).folded().starts_with("a\\x1b[31mb\\x0ac;"));
}

#[test]
fn rings_of_several_cpus_are_merged_in_order_of_time() {
    let one = [sample(7, 7, 5, &[USER, 0x5010]), sample(7, 7, 25, &[USER, 0x5010])].concat();
    let two = [map(7, 0x5000, 0x1000, "//anon", 4), other(3, 1 << 13, ids(&[7, 7]), "next", 20)].concat();
    // Before its exec the process has no name here and its code is known. After it, the name is known and the code is not.
    assert_eq!(found(&[one, two]).folded(), "next;[unknown] 1\nthread 7;compiled one 1\n");
}

#[test]
fn a_forked_process_has_its_parents_memory_and_lost_records_are_counted() {
    let fork = other(7, 0, [ids(&[9, 7, 9, 7]), words(&[0])].concat(), "", 2);
    let lost = other(2, 0, words(&[0, 41]), "", 3);
    let ring = [map(7, 0x5000, 0x1000, "/nowhere/program", 1), fork, lost, sample(9, 9, 4, &[USER, 0x5010])].concat();
    let found = found(&[ring]);
    assert_eq!((found.folded().as_str(), found.lost, found.samples), ("thread 9;[program] 1\n", 41, 1));
}

#[test]
fn records_that_are_too_new_wait_for_the_other_rings() {
    let mut profile = Profile::new(Symbols::default(), false);
    profile.take(&sample(1, 1, 10, &[USER, 1]));
    profile.take(&sample(1, 1, 30, &[USER, 1]));
    profile.advance(20, &mut Own);
    assert_eq!(profile.samples(), 1);
    profile.advance(30, &mut Own);
    assert_eq!(profile.samples(), 2);
}

#[test]
fn functions_of_a_program_have_names_and_unsampled_ones_are_listed() {
    let mut profile = Profile::new(Symbols::default(), false);
    let at = functions_of_a_program_have_names_and_unsampled_ones_are_listed as *const () as u64;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let own = std::env::current_exe().unwrap();
    profile.maps(1, &maps.replace(own.to_str().unwrap(), "/own"), &mut Own);
    profile.take(&sample(1, 1, 1, &[USER, at]));
    let found = profile.found(&mut Own);
    assert!(found.rows(None)[0].name.contains("functions_of_a_program_have_names"), "{:?}", found.rows(None));
    let covered = &found.coverage()[0];
    assert_eq!((covered.object.as_str(), covered.seen.len()), ("/own", 1));
    assert!(covered.not_seen.iter().any(|name| name.contains("rings_of_several_cpus")));
}

#[test]
fn a_stack_without_unwind_tables_is_reported_as_cut() {
    let mut profile = Profile::new(Symbols::default(), true);
    let mut body = [words(&[0]), ids(&[1, 1]), words(&[5, 1, 0])].concat();
    // Registers of a 64-bit program, then 64 bytes of stack without valid addresses.
    body.extend(words(&[2]));
    body.extend(words(&[0x7000; profile::REGISTERS]));
    body.extend(words(&[64]));
    body.extend([0xff; 64]);
    body.extend(words(&[64]));
    profile.take(&record(9, 0, &body));
    let found = profile.found(&mut Own);
    assert_eq!(found.cut.get(&Cut::Tables), Some(&1), "{found:?}");
    assert!(found.folded().starts_with("thread 1;[cut: code without unwind tables];"), "{}", found.folded());
}

#[test]
fn damaged_rings_never_panic_and_give_no_extra_samples() {
    let whole = [
        map(7, 0x5000, 0x1000, "/own", 1),
        other(3, 1 << 13, ids(&[7, 7]), "name", 2),
        other(7, 0, [ids(&[9, 7, 9, 7]), words(&[0])].concat(), "", 3),
        sample(9, 9, 4, &[KERNEL, 1, USER, 0x5010, 0x5020]),
    ]
    .concat();
    let mut state = 1u64;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for _ in 0..3000 {
        let mut ring = whole.clone();
        for _ in 0..=next(4) {
            let at = next(ring.len());
            ring[at] = [0, 1, 0x7f, 0x80, 0xff][next(5)];
        }
        ring.truncate(next(ring.len()) + 1);
        let mut profile = Profile::new(Symbols::default(), next(2) == 0);
        profile.take(&ring);
        struct None_;
        impl Files for None_ {
            fn open(&mut self, _: i32, _: &str, _: (u32, u32, u64)) -> Option<Box<dyn Source>> {
                None
            }
            fn debug(&mut self, _: &[u8]) -> Option<Box<dyn Source>> {
                None
            }
            fn made(&mut self, _: i32) -> Option<String> {
                None
            }
        }
        let found = profile.found(&mut None_);
        assert!(found.samples <= 1 && found.folded().lines().count() as u64 <= found.samples);
    }
}

/// Objects as bytes.
struct Bytes(Vec<u8>);

impl Files for Bytes {
    fn open(&mut self, _: i32, _: &str, _: (u32, u32, u64)) -> Option<Box<dyn Source>> {
        Some(Box::new(std::io::Cursor::new(self.0.clone())))
    }
    fn debug(&mut self, _: &[u8]) -> Option<Box<dyn Source>> {
        Some(Box::new(std::io::Cursor::new(self.0.clone())))
    }
    fn made(&mut self, _: i32) -> Option<String> {
        None
    }
}

#[test]
fn broken_objects_never_panic() {
    // The vDSO is an object with code, symbols and unwind tables in a few pages.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let range = maps.lines().find(|line| line.ends_with("[vdso]")).unwrap().split(' ').next().unwrap().to_owned();
    let (start, end) = range.split_once('-').unwrap();
    let (start, end) = (u64::from_str_radix(start, 16).unwrap(), u64::from_str_radix(end, 16).unwrap());
    let mut whole = vec![0; (end - start) as usize];
    let memory = File::open("/proc/self/mem").unwrap();
    std::os::unix::fs::FileExt::read_exact_at(&memory, &mut whole, start).unwrap();
    let mut state = 7u64;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut named = 0;
    for round in 0..1500 {
        let mut bytes = whole.clone();
        for _ in 0..round.min(6) {
            // Change headers and tables more often than code.
            let at = if next(2) == 0 { next(2048) } else { next(bytes.len()) };
            bytes[at] = [0, 1, 0x7f, 0x80, 0xff][next(5)];
        }
        if next(8) == 0 {
            bytes.truncate(next(bytes.len()));
        }
        let mut files = Bytes(bytes);
        let mut profile = Profile::new(Symbols::default(), true);
        profile.maps(
            1,
            &format!("{:x}-{:x} r-xp 00000000 00:00 0 [vdso]\n", 0x10000, 0x10000 + whole.len()),
            &mut files,
        );
        for _ in 0..20 {
            let mut body = [words(&[0]), ids(&[1, 1]), words(&[5, 1, 0, 2])].concat();
            let at = 0x10000 + next(whole.len()) as u64;
            let registers = [0x7000, 0x7008, at, at];
            body.extend(words(
                &if profile::REGISTERS == 3 { [0x7010, 0x7000, at, 0] } else { registers }[..profile::REGISTERS],
            ));
            body.extend(words(&[256]));
            body.extend((0..32).flat_map(|_| (0x10000 + next(whole.len()) as u64).to_ne_bytes()));
            body.extend(words(&[256]));
            profile.take(&record(9, 0, &body));
        }
        let found = profile.found(&mut files);
        assert_eq!(found.stacks.iter().map(|stack| stack.samples).sum::<u64>(), 20);
        named += usize::from(found.coverage().iter().any(|of| !of.seen.is_empty()));
    }
    assert!(named > 100, "{named}");
}
