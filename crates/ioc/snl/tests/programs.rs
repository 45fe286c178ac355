//! Programs as users write them, run with simulated process variables and time.

use base::{Alarm, DurNs, MonoNs, Scalar, Severity, Stamp, Status, Str40, Value};
use snl::{Action, Event, Machine, Now, Stage};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A program with process variables that connect at once, and completion of writes on request.
struct Bench {
    machine: Machine,
    now: u64,
    wake: Option<MonoNs>,
    names: BTreeMap<u32, String>,
    values: BTreeMap<String, Value>,
    monitors: Vec<u32>,
    /// Writes whose completion is not reported yet.
    writes: Vec<u32>,
    reads: Vec<u32>,
    completes: bool,
    puts: Vec<(String, Value)>,
    out: String,
    log: Vec<String>,
}

fn errors(text: &str) -> String {
    snl::parse(text, "p.st", &mut |_, _| None).unwrap_err().to_string()
}

fn number(value: f64) -> Value {
    Value::Scalar(Scalar::F64(value))
}

fn text(text: &str) -> Value {
    Value::Scalar(Scalar::String(Str40::from(text)))
}

impl Bench {
    fn new(text: &str, values: &[(&str, Value)]) -> Self {
        Self::with(text, "", values)
    }

    fn with(text: &str, params: &str, values: &[(&str, Value)]) -> Self {
        let program = snl::parse(text, "p.st", &mut |_, name| Some((name.to_owned(), "#define STEP 2\n".to_owned())));
        let program = program.unwrap_or_else(|errors| panic!("{errors}"));
        let mut bench = Self {
            machine: Machine::new(Arc::new(program), params, Now::default()),
            now: 0,
            wake: None,
            names: BTreeMap::new(),
            values: values.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
            monitors: Vec::new(),
            writes: Vec::new(),
            reads: Vec::new(),
            completes: true,
            puts: Vec::new(),
            out: String::new(),
            log: Vec::new(),
        };
        bench.machine.start(bench.time());
        bench.settle();
        bench
    }

    fn time(&self) -> Now {
        Now { mono: MonoNs(self.now), wall: Stamp::from_unix(1_000_000_000 + self.now / 1_000_000_000, 0) }
    }

    /// Runs until nothing more happens at this time.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            for action in self.machine.take_actions() {
                self.act(action);
            }
            if self.completes {
                for channel in std::mem::take(&mut self.writes) {
                    self.machine.handle(Event::Written(channel, true));
                }
                for channel in std::mem::take(&mut self.reads) {
                    self.answer(channel);
                }
            }
            self.wake = self.machine.step(self.time());
            let more = self.wake.is_some_and(|wake| wake.0 <= self.now);
            let actions = self.machine.take_actions();
            if !more && actions.is_empty() {
                return;
            }
            for action in actions {
                self.act(action);
            }
        }
        panic!("the program does not come to rest: {}", self.out);
    }

    fn answer(&mut self, channel: u32) {
        let value = self.values[&self.names[&channel]].clone();
        self.machine.handle(Event::Read(channel, value, Alarm::NONE, self.time().wall));
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Connect(channel, name) => {
                let Some(value) = self.values.get(&name) else { return drop(self.names.insert(channel, name)) };
                self.machine.handle(Event::Connected(channel, value.len() as u32));
                self.names.insert(channel, name);
            }
            Action::Disconnect(channel) => {
                self.names.remove(&channel);
                self.monitors.retain(|known| *known != channel);
            }
            Action::Monitor(channel, true) => {
                self.monitors.push(channel);
                if let Some(value) = self.values.get(&self.names[&channel]) {
                    self.machine.handle(Event::Monitor(channel, value.clone(), Alarm::NONE, self.time().wall));
                }
            }
            Action::Monitor(channel, false) => self.monitors.retain(|known| *known != channel),
            Action::Read(channel) => self.reads.push(channel),
            Action::Write(channel, value, completion) => {
                let name = self.names[&channel].clone();
                if completion {
                    self.writes.push(channel);
                }
                self.puts.push((name.clone(), value.clone()));
                self.change(&name, value);
            }
            Action::Print(bytes) => self.out.push_str(&String::from_utf8_lossy(&bytes)),
            Action::Log(text) => self.log.push(text),
        }
    }

    /// Changes a process variable.
    fn change(&mut self, name: &str, value: Value) {
        self.values.insert(name.to_owned(), value.clone());
        for channel in self.monitors.clone() {
            if self.names[&channel] == name {
                self.machine.handle(Event::Monitor(channel, value.clone(), Alarm::NONE, self.time().wall));
            }
        }
    }

    fn set(&mut self, name: &str, value: Value) {
        self.change(name, value);
        self.settle();
    }

    /// Lets time pass, with every wake-up in between.
    fn pass(&mut self, ms: i64) {
        let end = self.now + DurNs::from_ms(ms).0 as u64;
        while let Some(wake) = self.wake.filter(|wake| wake.0 <= end) {
            self.now = self.now.max(wake.0);
            self.settle();
        }
        self.now = end;
        self.settle();
    }

    fn state(&self) -> String {
        self.machine.sets().iter().map(|set| set.state.clone()).collect::<Vec<_>>().join(",")
    }
}

/// Output of a program whose only state runs `body` once.
fn printed(body: &str) -> String {
    let before = "program p int g[3] = {1, 2, 3}; string s = \"abc\"; double d; char buf[20]; int n; char *p; evflag e;\n\
        struct pair { short a; double b; }; struct pair q;\n\
        int twice(int x) { return 2 * x; } int fact(int x) { if (x < 2) return 1; return x * fact(x - 1); }\n\
        ss s { state one { when () {\n";
    let bench =
        Bench::new(&format!("{before}{body}\n}} state two }} state two {{ when (FALSE) {{ }} state one }} }}"), &[]);
    assert_eq!(bench.log.iter().find(|line| line.contains("ends")), None, "{body}");
    bench.out
}

#[test]
fn expressions_are_those_of_c() {
    for (body, out) in [
        ("printf(\"%d\", 7 / 2 * 2 + 7 % 4 - -1);", "10"),
        ("printf(\"%g %g\", 7 / 2.0, 1e3);", "3.5 1000"),
        ("char c = 200; unsigned char u = 200; short h = 70000; printf(\"%d %d %d\", c, u, h);", "-56 200 4464"),
        ("unsigned int u = 0; u--; printf(\"%u %d\", u, u > 0);", "4294967295 1"),
        ("int i = 2147483647; i++; printf(\"%d\", i);", "-2147483648"),
        ("float f = 0.1; printf(\"%.9f %d\", f, f == 0.1);", "0.100000001 0"),
        ("printf(\"%d %d %d\", 1 << 4 | 3, 0x10 ^ 010, ~5 & 0xff);", "19 24 250"),
        (
            "printf(\"%d\", 3 > 2 ? 10 : 20); n = 0; n += 5; n *= 3; n -= 1; n /= 2; n <<= 2; n %= 5; printf(\" %d\", n);",
            "10 3",
        ),
        ("n = 1; printf(\"%d %d %d\", n++, ++n, n--);", "1 3 3"),
        ("n = 0; printf(\"%d\", n != 0 && 1 / n); printf(\"%d\", n == 0 || 1 / n);", "01"),
        ("printf(\"%d %d\", g[0] + g[2], (int)sizeof(g));", "4 12"),
        ("p = s; printf(\"%c %c %s\", *p, p[1], p + 1); p++; printf(\"%d\", p - s);", "a b bc1"),
        ("q.a = 3; q.b = 1.5; printf(\"%g %d\", q.a * q.b, (int)sizeof(struct pair));", "4.5 16"),
        ("struct pair r; q.a = 9; r = q; q.a = 1; printf(\"%d\", r.a);", "9"),
        ("int *t = &g[1]; *t = 7; printf(\"%d %d\", g[1], t[1]);", "7 3"),
        ("int m[2][3] = {{1,2,3},{4,5,6}}; printf(\"%d %d\", m[1][2], m[0][1]);", "6 2"),
        ("printf(\"%d %d\", twice(4), fact(5));", "8 120"),
        ("int m[2][3] = {{1,2,3},{4,5,6}}; int (*r)[3] = &m[1]; printf(\"%d %d\", (*r)[1], r[0][2]);", "5 6"),
        ("n = (d = 2.9, d); printf(\"%d %d\", n, (int)-2.9);", "2 -2"),
        ("printf(\"%d%d\", 'a', '\\n');", "9710"),
        ("printf(\"a\" \"b\" \"%s\\x41\\101\", \"c\");", "abcAA"),
        ("printf(\"%d %d\", 5 == 5.0, NULL == 0);", "1 1"),
        ("printf(\"%ld\", 3000000000 + 1);", "3000000001"),
    ] {
        assert_eq!(printed(body), out, "{body}");
    }
}

#[test]
fn statements_are_those_of_c() {
    for (body, out) in [
        ("for (n = 0; n < 10; n++) { if (n == 2) continue; if (n == 5) break; printf(\"%d\", n); }", "0134"),
        ("n = 3; while (n) printf(\"%d\", n--);", "321"),
        ("int i; for (i = 0; i < 2; i++) { int k = 5; k += i; printf(\"%d\", k); }", "56"),
        ("if (n) printf(\"x\"); else if (n == 0) printf(\"y\"); else printf(\"z\");", "y"),
        ("n = 4; { int n = 5; printf(\"%d\", n); } printf(\"%d\", n);", "54"),
        ("printf(\"a\"); state two; printf(\"b\");", "a"),
        ("for (;;) { n++; if (n > 3) break; } printf(\"%d\", n);", "4"),
    ] {
        assert_eq!(printed(body), out, "{body}");
    }
}

#[test]
fn functions_of_the_c_library_behave_as_in_c() {
    for (body, out) in [
        ("strcpy(buf, \"hello\"); strcat(buf, \" x\"); printf(\"%s %d\", buf, (int)strlen(buf));", "hello x 7"),
        ("strncpy(s, \"longer\", 3); printf(\"%s\", s);", "lon"),
        ("printf(\"%d %d %d\", strcmp(\"a\", \"b\"), strcmp(s, \"abc\"), strncmp(\"abx\", \"aby\", 2));", "-1 0 0"),
        ("sprintf(buf, \"%03d|%-4s|%+.2f\", 7, \"ab\", 1.255); printf(\"%s\", buf);", "007|ab  |+1.25"),
        ("printf(\"%x %X %#x %o %5d|%-5d|%c%%\", 255, 255, 255, 8, 42, 42, 65);", "ff FF 0xff 10    42|42   |A%"),
        ("printf(\"%e %g %g %.3g\", 12345.678, 0.0001, 1e-5, 1234.5);", "1.234568e+04 0.0001 1e-05 1.23e+03"),
        ("printf(\"%s\", macValueGet(\"none\") == NULL ? \"no\" : \"yes\");", "no"),
        ("printf(\"%d %g\", atoi(\" 42x\"), atof(\"1.5e2\"));", "42 150"),
        ("sscanf(\"12 3.5 abc\", \"%d %lf %s\", &n, &d, s); printf(\"%d %g %s\", n, d, s);", "12 3.5 abc"),
        ("printf(\"%g %g %g\", fabs(-2.5), sqrt(16.0), pow(2, 10));", "2.5 4 1024"),
        ("p = strchr(\"a=b\", '='); printf(\"%s %s\", p, strstr(\"hello\", \"ll\"));", "=b llo"),
        ("printf(\"%*d|%.*s\", 4, 1, 2, \"abcd\");", "   1|ab"),
        ("printf(\"%d\", toupper('a'));", "65"),
        ("efSet(e); printf(\"%d%d%d\", efTest(e), efTestAndClear(e), efTest(e));", "110"),
    ] {
        assert_eq!(printed(body), out, "{body}");
    }
}

#[test]
fn macros_conditions_and_included_files_are_preprocessed() {
    let program = "#include \"steps.h\"\n#include <string.h>\n#define PV(type, name) type name; assign name to \"{P}\" #name; \\\n\
        monitor name; evflag name##_mon; sync name name##_mon\n#define ADD(a, b) ((a) + (b))\n\
        #if defined(STEP) && STEP > 1\n#define WAIT 1\n#else\nthis is not SNL 'at all\n#endif\n\
        program p(\"P=X:\")\noption +r;\n%%#include <stdio.h>\n%{ /* nothing */\n#include <math.h>\n}%\nPV(int, speed);\n\
        ss s { state a { when (efTestAndClear(speed_mon)) { printf(\"%d\", ADD(speed, STEP) * WAIT); } state a } }\n";
    let mut bench = Bench::new(program, &[("X:speed", number(5.0))]);
    assert_eq!(bench.out, "7");
    bench.set("X:speed", number(6.0));
    assert_eq!(bench.out, "78");
}

#[test]
fn a_macro_takes_further_arguments_and_knows_file_and_line() {
    let program = "#define LOG(f, ...) printf(\"%s:%d \" f, __FILE__, __LINE__, __VA_ARGS__)\nprogram p\nforeign pvStatOK;\n\
        ss s { state a { when () {\nLOG(\"%d %d\", 1, (2, 3)); } exit } }";
    assert_eq!(Bench::new(program, &[]).out, "p.st:5 1 3");
}

#[test]
fn conditions_are_evaluated_in_order_at_entry_and_at_each_event() {
    let mut bench = Bench::new(
        "program p double v; assign v to \"v\"; monitor v;\n\
         ss s { state low { when (v > 50) { printf(\"h\"); } state high when (v > 20) { printf(\"m\"); } state low2 }\n\
         state low2 { when (v < 20) { printf(\"l\"); } state low }\n\
         state high { when (v < 50) { printf(\"d\"); } state low } }",
        &[("v", number(0.0))],
    );
    assert_eq!((bench.state().as_str(), bench.out.as_str()), ("low", ""));
    bench.set("v", number(60.0));
    assert_eq!(bench.state(), "high");
    bench.set("v", number(30.0));
    assert_eq!((bench.state().as_str(), bench.out.as_str()), ("low2", "hdm"));
}

#[test]
fn a_delay_counts_from_each_entry_unless_the_option_says_otherwise() {
    let program = |option: &str| {
        format!(
            "program p int v; assign v to \"v\"; monitor v; evflag e; sync v e;\n\
             ss s {{ state a {{ {option} when (delay(2)) {{ printf(\"late\"); }} state b \
             when (efTestAndClear(e)) {{ printf(\".\"); }} state a }} state b {{ when (FALSE) {{ }} state b }} }}"
        )
    };
    for (option, before, after) in [("", "..", "..late"), ("option -t;", "..late", "..late")] {
        let mut bench = Bench::new(&program(option), &[("v", number(0.0))]);
        bench.pass(1_500);
        bench.set("v", number(1.0));
        bench.pass(600);
        assert_eq!(bench.out, before, "{option}");
        bench.pass(1_500);
        assert_eq!(bench.out, after, "{option}");
    }
}

#[test]
fn entry_and_exit_run_between_different_states_or_each_time_by_option() {
    let program = |option: &str| {
        format!(
            "program p int n; ss s {{ state a {{ {option} entry {{ printf(\"<\"); }} when (n >= 2) {{ }} state b \
             when () {{ n++; }} state a exit {{ printf(\">\"); }} }} state b {{ when (FALSE) {{ }} state b }} }}"
        )
    };
    assert_eq!(Bench::new(&program(""), &[]).out, "<>");
    assert_eq!(Bench::new(&program("option -e; option -x;"), &[]).out, "<><><>");
}

#[test]
fn a_program_starts_when_all_channels_have_connected_and_delivered() {
    let program = |option: &str| {
        format!(
            "program p {option} int a; assign a to \"a\"; monitor a; int b; assign b to \"b\"; entry {{ printf(\"[\"); }}\n\
             ss s {{ state one {{ when (pvConnectCount() == 2) {{ printf(\"%d\", a); }} exit }} }} exit {{ printf(\"]\"); }}"
        )
    };
    let mut bench = Bench::new(&program(""), &[("a", number(1.0))]);
    bench.pass(5_000);
    assert_eq!(bench.machine.stage(), Stage::Connecting);
    assert!(
        bench.log[0].contains("assigned=2, connected=1") && bench.log[0].ends_with("missing: b"),
        "{:?}",
        bench.log
    );
    bench.machine.handle(Event::Connected(1, 1));
    bench.settle();
    assert_eq!((bench.machine.stage(), bench.out.as_str()), (Stage::Ended, "[1]"));
    let mut bench = Bench::new(&program("option -c;"), &[("a", number(1.0))]);
    assert_eq!((bench.out.as_str(), bench.state().as_str()), ("[", "one"));
    bench.machine.handle(Event::Connected(1, 1));
    bench.settle();
    assert_eq!(bench.out, "[1]");
}

#[test]
fn a_synchronous_put_waits_for_its_completion_and_times_out() {
    let program = "program p int n = 4; assign n to \"n\"; int r; ss s { state a { when () {\n\
        r = pvPut(n, SYNC); printf(\"%d\", r); n++; r = pvPut(n, SYNC, 2.0); printf(\"%d\", r == pvStatTIMEOUT); } exit } }";
    let mut bench = answered_on_request(program, [("n", number(0.0))]);
    assert_eq!(bench.out, "");
    assert_eq!(bench.puts, [("n".to_owned(), Value::Scalar(Scalar::I32(4)))]);
    bench.machine.handle(Event::Written(0, true));
    bench.writes.clear();
    bench.settle();
    assert_eq!(bench.out, "0");
    bench.pass(1_900);
    assert_eq!(bench.out, "0");
    bench.pass(200);
    assert_eq!((bench.out.as_str(), bench.machine.stage()), ("01", Stage::Ended));
}

/// A program whose reads and writes are answered only on request.
fn answered_on_request<const N: usize>(program: &str, values: [(&str, Value); N]) -> Bench {
    let program = snl::parse(program, "p.st", &mut |_, _| None).unwrap_or_else(|errors| panic!("{errors}"));
    let mut bench = Bench::new("program p ss s { state a { when (FALSE) { } state a } }", &values);
    bench.completes = false;
    bench.machine = Machine::new(Arc::new(program), "", Now::default());
    bench.machine.start(bench.time());
    bench.settle();
    bench
}

#[test]
fn asynchronous_requests_are_pending_once_for_each_channel() {
    let program = "program p int n = 4; assign n to \"n\"; int m; assign m to \"m\"; evflag e; sync m e; monitor m;\n\
        ss s { state a { when () { printf(\"%d%d\", pvPut(n, ASYNC), pvPut(n, ASYNC)); pvPut(n, ASYNC); pvGet(m, ASYNC); } state b }\n\
        state b { when (pvPutComplete(n) && pvGetComplete(m)) { printf(\"done%d\", m); } exit } }";
    let mut bench = answered_on_request(program, [("n", number(0.0)), ("m", number(7.0))]);
    assert_eq!((bench.out.as_str(), bench.state().as_str()), ("0-1", "b"));
    let is_report = |line: &&String| line.contains("pvPut(n, ASYNC) to n: found one that is pending");
    assert_eq!(bench.log.iter().filter(is_report).count(), 1, "{:?}", bench.log);
    bench.machine.handle(Event::Written(0, true));
    bench.settle();
    assert_eq!(bench.state(), "b");
    bench.answer(1);
    bench.settle();
    assert_eq!(bench.out, "0-1done7");
}

#[test]
fn a_get_that_replaces_a_pending_one_takes_its_own_answer() {
    let program = "program p int m; assign m to \"m\"; ss s { state a { when () { pvGet(m, ASYNC);\n\
        printf(\"%d\", pvGet(m, SYNC, 1.0)); printf(\"%d\", m); } exit } }";
    let mut bench = answered_on_request(program, [("m", number(0.0))]);
    assert_eq!(bench.reads, [0]);
    bench.pass(1_100);
    assert_eq!((bench.reads.as_slice(), bench.out.as_str()), ([0, 0].as_slice(), ""));
    for (answer, out) in [(1.0, ""), (2.0, "02")] {
        bench.machine.handle(Event::Read(0, number(answer), Alarm::NONE, bench.time().wall));
        bench.settle();
        assert_eq!(bench.out, out);
    }
}

#[test]
fn requests_that_are_never_answered_are_limited() {
    let program = "program p int x; assign x to \"x\"; int n; int i; ss s { state a { when () {\n\
        for (i = 0; i < 1500; i++) { n += pvGet(x, SYNC, 0.0) == pvStatTIMEOUT; } printf(\"%d %s,\", n, pvMessage(x)); n = 0;\n\
        for (i = 0; i < 1500; i++) { n += pvPut(x, ASYNC) == 0; pvPutCancel(x); } printf(\"%d\", n); } exit } }";
    let bench = answered_on_request(program, [("x", number(0.0))]);
    assert_eq!(bench.out, "1000 too many requests without an answer,1000");
    assert_eq!((bench.reads.len(), bench.writes.len()), (1000, 1000));
}

#[test]
fn a_get_reads_the_value_in_the_type_of_the_variable() {
    let mut bench = Bench::new(
        "program p string s; assign s to \"s\"; short h; assign h to \"h\"; double a[4]; assign a to \"a\"; ss x { state a { \
         when () { pvGet(s); pvGet(h); pvGet(a); printf(\"%s %d %g %g %u\", s, h, a[1], a[2], pvCount(a)); } exit } }",
        &[("s", number(1.5)), ("h", text("12")), ("a", Value::Array(base::Array::I32(vec![1, 2])))],
    );
    bench.settle();
    assert_eq!(bench.out, "2 12 2 0 2");
}

#[test]
fn a_disconnected_channel_fails_and_reports_its_status() {
    let mut bench = Bench::new(
        "program p option -c; int n; assign n to \"none\"; ss s { state a { when () { printf(\"%d %d %d %s\", pvPut(n), \
         pvGet(n) == pvStatDISCONN, pvStatus(n), pvMessage(n)); } exit } }",
        &[],
    );
    bench.settle();
    assert_eq!(bench.out, "-2 1 -2 not connected");
}

#[test]
fn channels_of_an_array_are_assigned_and_used_one_by_one() {
    let bench = Bench::with(
        "program p(\"P=X:\") int v[3]; assign v to {\"{P}a\", \"{P}b\", \"\"}; monitor v; evflag e; sync v[1] to e; int i;\n\
         ss s { state a { when (efTestAndClear(e)) { for (i = 0; i < 2; i++) { printf(\"%d \", v[i]); v[i] += 1; pvPut(v[i]); }\n\
         printf(\"%d%d%s\", pvAssigned(v[2]), pvIndex(v[1]), macValueGet(\"P\")); } exit } }",
        "P=Y:",
        &[("Y:a", number(1.0)), ("Y:b", number(2.0))],
    );
    assert!(bench.out == "1 2 01Y:", "{}", bench.out);
    assert_eq!(
        bench.puts,
        [("Y:a".into(), Value::Scalar(Scalar::I32(2))), ("Y:b".into(), Value::Scalar(Scalar::I32(3)))]
    );
}

#[test]
fn a_channel_is_assigned_at_run_time() {
    let mut bench = Bench::new(
        "program p int v; assign v to \"\"; monitor v; ss s { state a { when () { printf(\"%d\", pvAssigned(v)); \
         pvAssign(v, \"b\"); } state b } state b { when (pvConnected(v) && v == 3) { printf(\"%d\", pvAssigned(v)); pvAssign(v, \"\"); \
         printf(\"%d\", pvConnected(v)); } exit } }",
        &[("b", number(2.0))],
    );
    assert_eq!(bench.out, "0");
    bench.set("b", number(3.0));
    assert_eq!(bench.out, "010");
}

#[test]
fn a_queue_keeps_values_and_replaces_the_newest_when_full() {
    let mut bench = Bench::new(
        "program p option -c; int v; assign v to \"v\"; monitor v; evflag e; syncq v to e 2; int go; assign go to \"go\"; monitor go;\n\
         ss s { state a { when (go && pvGetQ(v)) { printf(\"%d\", v); } state a when (go && !efTest(e)) { printf(\".\"); } exit } }",
        &[("v", number(1.0)), ("go", number(0.0))],
    );
    bench.set("v", number(2.0));
    bench.set("v", number(3.0));
    bench.set("go", number(1.0));
    assert_eq!(bench.out, "13.");
}

#[test]
fn event_flags_connect_state_sets() {
    let mut bench = Bench::new(
        "program p evflag ping; evflag pong; int n; ss one { state a { when (n >= 3) { } exit when () { efSet(ping); } state b }\n\
         state b { when (efTestAndClear(pong)) { n++; printf(\"%d\", n); } state a } }\n\
         ss two { state w { when (efTestAndClear(ping)) { efSet(pong); } state w } } exit { printf(\"!\"); }",
        &[],
    );
    bench.settle();
    assert_eq!((bench.out.as_str(), bench.machine.stage()), ("123!", Stage::Ended));
}

#[test]
fn with_old_event_flags_a_transition_clears_those_it_tested() {
    let program = |option: &str| {
        format!(
            "program p option {option}e; evflag e; int n; ss s {{ state a {{ when () {{ efSet(e); }} state b }} state b {{ \
            when (n > 2) {{ }} exit when (efTest(e)) {{ n++; printf(\"x\"); }} state b }} }}"
        )
    };
    assert_eq!(Bench::new(&program("+"), &[]).out, "xxx");
    assert_eq!(Bench::new(&program("-"), &[]).out, "x");
}

#[test]
fn in_safe_mode_state_sets_share_values_only_through_channels() {
    let mut bench = Bench::new(
        "program p option +s; int n = 1; assign n to \"\"; monitor n; int plain = 1; evflag e; ss one { state a { when () { n = 5; \
         plain = 5; efSet(e); } state b } state b { when (delay(1)) { pvPut(n); } state c } state c { when (FALSE) { } state c } }\n\
         ss two { state w { when (efTestAndClear(e)) { printf(\"%d%d \", n, plain); } state v } state v { when (n == 5) { \
         printf(\"%d%d\", n, plain); } state w } }",
        &[],
    );
    assert_eq!(bench.out, "11 ");
    bench.pass(1_000);
    assert_eq!(bench.out, "11 51");
}

#[test]
fn variables_of_states_and_state_sets_live_as_long_as_the_program() {
    let out = "program p int n; ss s { int k = 1; state a { int j = 10; when (n == 2) { } exit when () { n++; k++; j++; \
        printf(\"%d%d \", k, j); } state b } state b { int k = 7; when () { printf(\"%d \", k); } state a } }";
    assert_eq!(Bench::new(out, &[]).out, "211 7 312 7 ");
}

#[test]
fn an_alarm_and_its_time_are_reported() {
    let mut bench = Bench::new(
        "program p int v; assign v to \"v\"; monitor v; struct epicsTimeStamp t; ss s { state a { when (pvSeverity(v) == pvSevrMAJOR) { \
         t = pvTimeStamp(v); printf(\"%d %u %u\", pvStatus(v) == pvStatHIHI, t.secPastEpoch, t.nsec); } exit } }",
        &[("v", number(1.0))],
    );
    let alarm = Alarm { status: Status::Hihi, severity: Severity::Major };
    bench.machine.handle(Event::Monitor(0, number(9.0), alarm, Stamp { secs: 5, nanos: 6 }));
    bench.settle();
    assert_eq!(bench.out, "1 5 6");
}

#[test]
fn an_error_in_running_code_ends_the_program_with_its_place() {
    for (body, what) in [
        ("n = 1 / n;", "division by zero"),
        ("n = a[n + 3];", "index 3 of an array of 3 elements"),
        ("n = *p;", "null pointer"),
        ("p = \"x\"; *p = 1;", "constant text"),
        ("n = deep(1);", "call each other without end"),
        ("strcpy(p, \"a\");", "null pointer"),
    ] {
        let program = format!(
            "program p\nint n; int a[3]; char *p; int deep(int x) {{ return deep(x) + 1; }}\nss s {{ state one {{ when () {{\n\n{body} }} exit }} }}"
        );
        let bench = Bench::new(&program, &[]);
        let log = bench.log.join("\n");
        assert!(log.contains(what) && log.contains("state set s, state one: p.st:"), "{body}: {log}");
        assert_eq!(bench.machine.stage(), Stage::Ended);
    }
}

#[test]
fn an_endless_loop_leaves_time_for_other_state_sets_and_for_a_stop() {
    let program = snl::parse(
        "program p int n; ss a { state x { when () { while (1) n++; } state x } } ss b { state y { when () { printf(\"ok\"); } state z } \
         state z { when (FALSE) { } state z } }",
        "p.st",
        &mut |_, _| None,
    );
    let mut machine = Machine::new(Arc::new(program.unwrap()), "", Now::default());
    machine.start(Now::default());
    assert_eq!(machine.step(Now::default()), Some(MonoNs(0)));
    assert!(machine.take_actions().contains(&Action::Print(b"ok".to_vec())));
}

#[test]
fn errors_name_place_finding_and_remedy() {
    for (program, place, what) in [
        ("program p\nss s { state a {\nwhen (x) { } state a } }", "p.st:3:", "found x, which is not declared"),
        (
            "program p\nss s { state a { when () { } state b } }",
            "p.st:2:",
            "found state b, expected a state of the same state set: a",
        ),
        (
            "program p\n\n%{ int f(void) { return 1; } }%\nss s { state a { when () { } state a } }",
            "p.st:3:",
            "embedded C code",
        ),
        ("program p\nss s { state a { when () {\n%%fly();\n} state a } }", "p.st:3:", "embedded C code"),
        ("program p\nint v; monitor v;\nss s { state a { when () { } state a } }", "p.st:2:", "not assigned"),
        ("program p\nint v;\nss s { state a { when () {\npvPut(v); } state a } }", "p.st:4:", "not assigned"),
        (
            "program p\nint v[2]; assign v to {\"a\",\"b\"};\nss s { state a { when () {\npvPut(v); } state a } }",
            "p.st:4:",
            "assigned separately",
        ),
        ("program p\nss s { state a { when () {\nfly(1); } state a } }", "p.st:3:", "found a call of fly"),
        ("program p\nstring s;\nss s { state a { when () {\ns = \"x\"; } state a } }", "p.st:4:", "use strcpy"),
        (
            "program p\nss s { state a { when () { int i\n; i = ; } state a } }",
            "p.st:3:",
            "found ;, expected an expression",
        ),
        ("program p\nss s { state a { when () { switch (1) { } } state a } }", "p.st:2:", "SNL does not have"),
        ("program p\nss s { state a { when () { delay(1); } state a } }", "p.st:2:", "delay outside"),
        (
            "program p\nss s { state a { when () { sqrt(); } state a } }",
            "p.st:2:",
            "found 0 arguments of sqrt, expected 1",
        ),
        ("program p\n#if 1\nss s { state a { when () { } state a } }", "p.st:3:", "expected #endif"),
        ("program p\nevflag e[3];\nss s { state a { when () { } state a } }", "p.st:2:", "expected one event flag"),
        ("program p\n", "p.st:1:", "expected \"ss NAME {\""),
        (
            "program p\nint v[2]; assign v to \"v\"; assign v[1] to \"w\";\nss s { state a { when () { } state a } }",
            "p.st:2:",
            "found an assign of v[1] after one of v as a whole",
        ),
        (
            "program p\nint v[2]; assign v[-1] to \"w\"; ss s { state a { when () { } state a } }",
            "p.st:2:",
            "element -1",
        ),
        (
            "program p\nstruct s { int a; }; struct s { int b; }; ss s { state a { when () { } state a } }",
            "p.st:2:",
            "second struct s",
        ),
        ("program p\nstruct s { struct s a; }; ss s { state a { when () { } state a } }", "p.st:2:", "without size"),
    ] {
        let errors = errors(program);
        assert!(errors.contains(place) && errors.contains(what), "{program}\n{errors}");
    }
    let all = errors("program p ss s { state a { when () { a(); b(); } state c } }");
    assert_eq!(all.lines().filter(|line| line.starts_with("p.st:1:")).count(), 3, "{all}");
}
