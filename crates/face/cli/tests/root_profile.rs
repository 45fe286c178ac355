//! `tahti profile` on the real kernel: C and Rust programs with known hot functions.

use harness::plant::{Bench, sh};
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Three quarters of the time is below one function, a quarter below another. Built with compiler defaults: no frame
/// pointers.
const C: &str = r#"
#include <stdlib.h>
#include <unistd.h>
#include <sys/wait.h>
#include <pthread.h>
volatile unsigned long sink;
__attribute__((noinline)) unsigned long spin(unsigned long n) { unsigned long s = 0; for (unsigned long i = 0; i < n; i++) s += i * i ^ s >> 3; return s; }
__attribute__((noinline)) void three_quarters(void) { sink += spin(300000) + 1; }
__attribute__((noinline)) void one_quarter(void) { sink += spin(100000) + 2; }
__attribute__((noinline)) void never(void) { sink += 3; }
__attribute__((noinline)) void deep(int n) { volatile char room[600]; room[0] = 1; if (n > 0) deep(n - 1); else three_quarters(); sink += room[0]; }
static void *work(void *rounds) { for (long i = 0; i < (long)rounds; i++) { deep(10); one_quarter(); } return 0; }
int main(int count, char **words) {
  long rounds = atol(words[1]);
  if (rounds < 0) never();
  if (count > 2 && words[2][0] == 'e') execl(words[0], words[0], words[1], (char *)0);
  if (count > 2 && words[2][0] == 't') {
    pthread_t other; pthread_create(&other, 0, work, (void *)rounds); pthread_setname_np(other, "second"); pthread_join(other, 0); return 0; }
  if (count > 2 && words[2][0] == 'r') { write(1, "ready\n", 6); for (;;) work((void *)1); }
  work((void *)rounds);
  return 0;
}
"#;

const RUST: &str = r#"
mod hot { #[inline(never)] pub fn cubes(n: u64) -> u64 { (0..n).fold(0, |sum, i| sum ^ std::hint::black_box(i * i * i)) } }
#[inline(never)] fn half(n: u64) -> u64 { hot::cubes(n) + 1 }
fn main() { let mut sum = 0; for _ in 0..200 { sum += half(1_000_000); } println!("{sum}"); }
"#;

/// A folder of this test, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tahti-profile-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Builds a program as a user would.
    fn build(&self, compiler: &str, words: &[&str], name: &str, source: &str) -> String {
        let (file, program) = (self.0.join(name), self.0.join(name.split('.').next().unwrap()));
        std::fs::write(&file, source).unwrap();
        let built = Command::new(compiler).args(words).arg("-o").arg(&program).arg(&file).output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        program.to_str().unwrap().to_owned()
    }

    fn c(&self) -> String {
        self.build("cc", &["-O2", "-pthread"], "spinner.c", C)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn tahti(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tahti")).arg("profile").args(words).stdin(Stdio::null()).output().unwrap()
}

/// Output of `tahti profile`, and its folded stacks.
fn profile(folder: &Folder, words: &[&str]) -> (String, BTreeMap<String, u64>) {
    let file = folder.path("out.folded");
    let output = tahti(&[&["-o", &file], words].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let folded = std::fs::read_to_string(&file).unwrap();
    let lines = folded.lines().map(|line| line.rsplit_once(' ').unwrap());
    let stacks = lines.map(|(stack, count)| (stack.to_owned(), count.parse().unwrap())).collect();
    (String::from_utf8_lossy(&output.stdout).into_owned(), stacks)
}

/// Number of open perf events of a process: one per CPU for each thread. While the cost of a sample is measured there
/// is only one.
fn events(pid: u32) -> usize {
    let fds = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let is_event = |fd: &std::fs::DirEntry| {
        std::fs::read_link(fd.path()).is_ok_and(|to| to.to_string_lossy().contains("perf_event"))
    };
    fds.filter(is_event).count()
}

/// Whether a process is sampling: its events are open, and it waits for them.
fn samples(pid: u32) -> bool {
    let waits_in = std::fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
    events(pid) >= 2 && waits_in.contains("poll")
}

/// The share of samples whose stack contains the frames in this order, next to each other.
fn share(stacks: &BTreeMap<String, u64>, frames: &str) -> f64 {
    let all: u64 = stacks.values().sum();
    let with = |stack: &str| format!(";{stack};").contains(&format!(";{frames};"));
    stacks.iter().filter(|(stack, _)| with(stack)).map(|(_, count)| *count).sum::<u64>() as f64 / all as f64
}

#[test]
fn hot_functions_of_a_c_program_have_their_shares_and_their_callers() {
    let folder = Folder::new("c");
    let (text, stacks) = profile(&folder, &["--", &folder.c(), "700"]);
    let deep = ["deep"; 11].join(";");
    let whole = share(&stacks, &format!("main;work;{deep};three_quarters;spin"))
        + share(&stacks, &format!("main;{deep};three_quarters;spin"));
    assert!((0.6..0.9).contains(&whole), "{whole} {text}");
    let quarter = share(&stacks, "one_quarter;spin");
    assert!((0.1..0.4).contains(&quarter), "{quarter}");
    assert_eq!(share(&stacks, "never"), 0.0);
    let samples: u64 = text.lines().find_map(|line| line.split_once(" samples represent")).unwrap().0.parse().unwrap();
    assert_eq!(stacks.values().sum::<u64>(), samples, "every sample is attributed");
    assert!(text.contains("; 0 lost"), "{text}");
}

#[test]
fn functions_of_a_rust_program_have_the_names_of_its_source() {
    let folder = Folder::new("rust");
    let program = folder.build("rustc", &["-O", "--edition", "2024"], "cubes.rs", RUST);
    let (text, stacks) = profile(&folder, &["--", &program]);
    assert!(share(&stacks, "cubes::half;cubes::hot::cubes") > 0.7, "{text}");
    assert!(share(&stacks, "cubes::main;cubes::half") > 0.7, "{text}");
}

#[test]
fn threads_are_distinguished_and_an_exec_restarts_the_symbols() {
    let folder = Folder::new("threads");
    let program = folder.c();
    let (text, stacks) = profile(&folder, &["--", &program, "300", "t"]);
    let second: u64 = stacks.iter().filter(|(stack, _)| stack.starts_with("second;")).map(|(_, count)| count).sum();
    assert!(second * 10 > stacks.values().sum::<u64>() * 8, "{text}");
    let (text, stacks) = profile(&folder, &["--", &program, "300", "exec"]);
    assert!(share(&stacks, "three_quarters;spin") > 0.5, "{text}");
    // A shell that forks, and a program executed by the child.
    let (text, stacks) = profile(&folder, &["--", "sh", "-c", &format!("{program} 300; true")]);
    assert!(share(&stacks, "three_quarters;spin") > 0.4, "{text}");
}

#[test]
fn a_running_process_is_sampled_until_it_ends() {
    let folder = Folder::new("running");
    let mut child = Command::new(folder.c()).args(["1", "run"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut word = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut word).unwrap();
    let pid = child.id().to_string();
    let (text, stacks) = profile(&folder, &["--pid", &pid, "--for", "1s"]);
    assert!(share(&stacks, "three_quarters;spin") > 0.5, "{text}");
    assert!(text.contains(&format!("spinner ({pid}, process {pid})")), "{text}");
    // The program ends while it is sampled, and the profile ends with it.
    let file = folder.path("end.folded");
    let sampler = Command::new(env!("CARGO_BIN_EXE_tahti"))
        .args(["profile", "--tid", &pid, "-o", &file])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    while !samples(sampler.id()) {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let output = sampler.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = tahti(&["--pid", &pid]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("no such process"));
}

#[test]
fn a_process_of_a_plant_is_sampled_by_its_name() {
    let folder = Folder::new("plant");
    // A shell that keeps running with its child: the time is attributed to the child.
    let bench = Bench::new("profile", &sh("loop", &format!("{} 1 run & wait", folder.c()), ""));
    bench.ok(&["up", "--detach"]);
    bench.until("child that runs", || {
        let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", bench.pid("loop")));
        let child = children.unwrap_or_default().trim().to_owned();
        std::fs::read_to_string(format!("/proc/{child}/comm")).is_ok_and(|name| name.trim() == "spinner")
    });
    let text = bench.ok(&["profile", "--process", "loop", "--for", "1s", "--top", "5"]);
    assert!(text.contains("spin  (spinner)"), "{text}");
    let output = bench.run(&["profile", "--process", "lop"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("plant p has no process \"lop\"; it has loop"));
}

#[test]
fn samples_lost_for_lack_of_space_are_counted() {
    let folder = Folder::new("lost");
    let mut child = Command::new(folder.c()).args(["1", "run"]).stdout(Stdio::null()).spawn().unwrap();
    let (pid, file) = (child.id().to_string(), folder.path("lost.folded"));
    let mut sampler = Command::new(env!("CARGO_BIN_EXE_tahti"));
    sampler.args(["profile", "--pid", &pid, "--hz", "5000", "--stack", "60KiB", "-o", &file]);
    let sampler = sampler.stdout(Stdio::piped()).spawn().unwrap();
    while !samples(sampler.id()) {
        std::thread::yield_now();
    }
    let signal = |signal: i32| sys::process::Process::open(sampler.id() as i32).unwrap().signal(signal).unwrap();
    // The profiler is stopped while the program uses half a second of CPU time, which yields a hundred times more
    // data than the buffer holds.
    // SIGTERM ends it like SIGINT, which a shell lets programs in the background ignore.
    let (stop, go_on, end) = (19, 18, 15);
    signal(stop);
    let used = || sys::clock::process_cpu(child.id() as i32).unwrap();
    let until = used().0 + 500_000_000;
    while used().0 < until {
        std::thread::yield_now();
    }
    signal(go_on);
    signal(end);
    let output = sampler.wait_with_output().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let lost =
        text.lines().find_map(|line| line.split(" processor time; ").nth(1)?.split(' ').next()?.parse::<u64>().ok());
    assert!(lost.unwrap_or(0) > 100, "{text}");
}

/// A generated function that is in no file, and a map file with its name.
const MADE: &str = r#"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void) {
  /* mov rax, rdi; 1: dec rax; jnz 1b; ret */
  const unsigned char code[] = {0x48, 0x89, 0xf8, 0x48, 0xff, 0xc8, 0x75, 0xfb, 0xc3};
  void *at = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memcpy(at, code, sizeof code);
  char path[64];
  snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
  FILE *map = fopen(path, "w");
  fprintf(map, "%lx %zx made_by_hand\n", (unsigned long)at, sizeof code);
  fclose(map);
  for (int i = 0; i < 300; i++) ((long (*)(long))at)(1000000);
  unlink(path);
  return 0;
}
"#;

#[cfg(target_arch = "x86_64")]
#[test]
fn generated_code_has_the_names_of_its_symbol_map() {
    let folder = Folder::new("made");
    let program = folder.build("cc", &["-O1"], "made.c", MADE);
    let (text, stacks) = profile(&folder, &["--by-thread", "--", &program]);
    let made = stacks.iter().filter(|(stack, _)| stack.ends_with(";made_by_hand")).map(|(_, count)| count).sum::<u64>();
    assert!(made * 10 > stacks.values().sum::<u64>() * 8, "{text}");
}

#[test]
fn stacks_deeper_than_their_copy_are_reported_as_cut() {
    let folder = Folder::new("cut");
    let (text, stacks) = profile(&folder, &["--stack", "1KiB", "--", &folder.c(), "300"]);
    assert!(text.contains("[cut: the stack is deeper than its copy] in "), "{text}");
    let cut = stacks
        .iter()
        .filter(|(stack, _)| stack.contains(";[cut: the stack is deeper than its copy];"))
        .map(|(_, count)| count);
    assert!(cut.sum::<u64>() * 2 > stacks.values().sum(), "{text}");
    let (text, _) = profile(&folder, &["--frame-pointers", "--", &folder.c(), "300"]);
    assert!(text.contains("callers of code built without them are missing") && text.contains("spin"), "{text}");
}

#[test]
fn coverage_lists_sampled_and_unsampled_functions() {
    let folder = Folder::new("coverage");
    let (text, _) = profile(&folder, &["--coverage", "--", &folder.c(), "300"]);
    let own = text.split(&format!(") {}\n", folder.path("spinner"))).nth(1).unwrap();
    let own: Vec<&str> = own.lines().take_while(|line| !line.contains(" %")).map(str::trim).collect();
    for (mark, name) in [("+", "spin"), ("+", "deep"), ("+", "main"), ("-", "never")] {
        assert!(own.contains(&format!("{mark} {name}").as_str()), "{mark} {name}: {text}");
    }
}

#[test]
fn drawings_are_self_contained() {
    let folder = Folder::new("drawings");
    for (name, begins) in [("out.svg", "<svg "), ("out.html", "<!doctype html>")] {
        let file = folder.path(name);
        let output = tahti(&["-o", &file, "--", &folder.c(), "100"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = std::fs::read_to_string(Path::new(&file)).unwrap();
        assert!(text.starts_with(begins) && text.contains("<title>three_quarters: "), "{name}");
        assert!(!text.replace("http://www.w3.org/2000/svg", "").contains("http"), "{name}");
    }
    let output = tahti(&["-o", "out.png", "--", "true"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("expected a name that ends in .folded, .svg or .html"));
}

#[test]
fn a_refused_profile_names_the_required_privileges() {
    let words = [env!("CARGO_BIN_EXE_tahti"), "profile", "--pid", "1", "--for", "1s"];
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .args(words)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && text.contains("kernel.perf_event_paranoid is ") && text.contains("CAP_PERFMON"),
        "{text}"
    );
    let folder = Folder::new("rights");
    // Other users must be able to run this test's program.
    std::fs::set_permissions(&folder.0, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let program = folder.c();
    let paranoid: i32 =
        std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap().trim().parse().unwrap();
    let words = [env!("CARGO_BIN_EXE_tahti"), "profile", "--", &program, "300"];
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .args(words)
        .output()
        .unwrap();
    let (text, why) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    match paranoid {
        3.. => assert!(why.contains("kernel.perf_event_paranoid"), "{why}"),
        2 => assert!(
            text.contains("kernel functions are not included") && text.contains("three_quarters"),
            "{text}{why}"
        ),
        _ => assert!(text.contains("three_quarters"), "{text}{why}"),
    }
}

/// Memory that is leaked, memory that is freed, and allocations of a real-time thread and of a forked child.
const LEAKS: &str = r#"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
void *kept[2000];
__attribute__((noinline)) void keeps(int i) { kept[i] = malloc(100); }
__attribute__((noinline)) void gives_back(void) { void *p = calloc(10, 20); p = realloc(p, 5000); free(p); void *q; if (posix_memalign(&q, 64, 640) == 0) free(q); free(aligned_alloc(64, 128)); }
__attribute__((noinline)) void urgent(void) { void *volatile p = malloc(64); free(p); }
static void *work(void *none) { struct sched_param how = {2}; sched_setscheduler(0, SCHED_FIFO, &how); for (int i = 0; i < 10; i++) urgent(); return none; }
__attribute__((noinline)) void childs(void) { kept[0] = malloc(777); }
int main(int count, char **words) {
  for (int i = 0; i < 1000; i++) { keeps(i); gives_back(); }
  pthread_t thread; pthread_create(&thread, 0, work, 0); pthread_join(thread, 0);
  pid_t child = fork();
  if (child == 0) { childs(); _exit(0); }
  waitpid(child, 0, 0);
  if (count > 1) kill(getpid(), SIGKILL);
  return 0;
}
"#;

/// Output of `tahti profile --memory`.
fn memory(words: &[&str]) -> String {
    let output = tahti(&[&["--memory"], words].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn unfreed_memory_is_named_with_its_call_site_for_any_end_of_the_program() {
    let folder = Folder::new("leaks");
    let program = folder.build("cc", &["-O1", "-pthread"], "leaks.c", LEAKS);
    for words in [&["--", &program][..], &["--", &program, "killed"]] {
        let text = memory(words);
        let parent = text.split("leaks (process").nth(1).unwrap();
        let section = |title: &str| {
            parent.split(title).nth(1).unwrap_or_default().split("):\n").nth(1).unwrap_or_default().to_owned()
        };
        let kept = section("not freed");
        assert!(kept.lines().next().unwrap().contains("97.7 KiB     1000  keeps < main"), "{text}");
        assert!(!kept.split("most allocations").next().unwrap().contains("gives_back"), "{text}");
        let urgent = section("real-time classes");
        assert!(urgent.lines().next().unwrap().trim_start().starts_with("10       10  urgent < work"), "{text}");
        assert!(text.contains("childs < main"), "the child's, too: {text}");
        assert!(!parent.split("leaks (process").next().unwrap().contains("childs"), "counted separately: {text}");
    }
}

#[test]
fn allocations_of_a_rust_program_have_the_names_of_its_functions() {
    let folder = Folder::new("rust-heap");
    let source = "#[inline(never)] fn grows(all: &mut Vec<Box<[u8]>>) { all.push(vec![1u8; 4000].into_boxed_slice()); }\n\
                  fn main() { let mut all = Vec::new(); for _ in 0..100 { grows(&mut all); } std::mem::forget(all); }";
    let text = memory(&["--", &folder.build("rustc", &["-O", "--edition", "2024"], "grows.rs", source)]);
    let kept = text.split("not freed").nth(1).unwrap().lines().nth(1).unwrap();
    assert!(kept.contains(" 100  grows::grows < grows::main"), "{text}");
}

#[test]
fn the_code_that_uses_new_memory_of_a_running_process_is_named_with_the_growth() {
    const GROWS: &str = r#"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
__attribute__((noinline)) void keeps_pages(void) { char *p = malloc(40000); if (p) memset(p, 1, 40000); }
int main(void) { write(1, "ready\n", 6); for (int i = 0; i < 6000; i++) { keeps_pages(); usleep(10000); } return 0; }
"#;
    let folder = Folder::new("attach");
    // Without the C library's own `memset`, whose code has no caller's frame on its stack in some versions.
    let program = folder.build("cc", &["-O1", "-fno-builtin"], "grows.c", GROWS);
    let mut child = Command::new(&program).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    let pid = child.id().to_string();
    let (text, stacks) = profile(&folder, &["--memory", "--pid", &pid, "--for", "1s"]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(text.contains("a sample at the first use of each page of memory"), "{text}");
    let growth = text
        .lines()
        .find(|line| line.starts_with(&format!("grows ({pid}): ")) && line.contains("resident"))
        .unwrap_or_else(|| panic!("{text}"));
    assert!(growth.contains(" resident before, ") && growth.ends_with(" after"), "{growth}");
    let kept = |stack: &&String| stack.contains(";main;keeps_pages");
    let (all, of): (u64, u64) =
        (stacks.values().sum(), stacks.iter().filter(|(stack, _)| kept(stack)).map(|(_, count)| *count).sum());
    assert!(of > 100 && of * 10 > all * 9, "{of} of {all}: {stacks:?}");
    let refused = tahti(&["--memory", "--pid", "1", "--", &program]);
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("expected no selection of threads or processes"));
}

#[test]
fn programs_that_cannot_load_the_heap_library_are_refused() {
    let folder = Folder::new("static");
    let program = folder.build("cc", &["-static"], "still.c", "int main(void) { return 0; }");
    let said = |words: &[&str]| String::from_utf8_lossy(&tahti(words).stderr).into_owned();
    assert!(said(&["--memory", "--", &program]).contains("linked statically"));
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o4755)).unwrap();
    assert!(said(&["--memory", "--", &program]).contains("set-user-ID"));
    assert!(said(&["--memory", "--", "/etc/hostname"]).contains("not a 64-bit program"));
    assert!(said(&["--memory", "--", "/nowhere"]).contains("/nowhere"));
}

#[test]
fn growth_is_reported_while_the_program_runs() {
    let folder = Folder::new("growth");
    let source = "#include <stdlib.h>\n#include <unistd.h>\nvoid *volatile kept;\n__attribute__((noinline)) void grow(void) { kept = malloc(1000); }\n\
                  int main(void) { for (;;) { grow(); usleep(1000); } }";
    let program = folder.build("cc", &["-O1"], "growing.c", source);
    let text = memory(&["--every", "200ms", "--for", "1s", "--", &program]);
    assert!(text.matches("grown within 200ms:").count() >= 2, "{text}");
    assert!(text.contains("grow < main") && text.contains(" now in use in "), "{text}");
}
