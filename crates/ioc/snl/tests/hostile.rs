//! Any text and any program: no panic, bounded work.

use proptest::prelude::*;
use snl::{Action, Event, Machine, Now};
use std::sync::Arc;

const WORDS: &[&str] = &[
    "program",
    "p",
    "ss",
    "s",
    "state",
    "a",
    "when",
    "(",
    ")",
    "{",
    "}",
    "entry",
    "exit",
    ";",
    "int",
    "x",
    "y",
    "[",
    "]",
    "3",
    "=",
    "+",
    "*",
    "&",
    "if",
    "else",
    "while",
    "for",
    "assign",
    "to",
    "\"v\"",
    "monitor",
    "evflag",
    "e",
    "sync",
    "efSet",
    "pvPut",
    "pvGet",
    "delay",
    "printf",
    "\"%d%s\"",
    ",",
    "option",
    "-",
    "c",
    "\n#define x",
    "\n#if",
    "\n#endif",
    "string",
    "double",
    "strcpy",
    "0.5",
    "?",
    ":",
    "%{",
    "}%",
    "%%",
    "//",
    "/*",
    "*/",
    "##",
    "#",
    "sizeof",
    "struct",
    "->",
];

fn run(text: &str) {
    let Ok(program) = snl::parse(text, "p.st", &mut |_, _| None) else { return };
    let mut machine = Machine::new(Arc::new(program), "P=1", Now::default());
    machine.start(Now::default());
    for _ in 0..20 {
        for action in machine.take_actions() {
            match action {
                Action::Connect(channel, _) => machine.handle(Event::Connected(channel, 1)),
                Action::Write(channel, _, true) => machine.handle(Event::Written(channel, true)),
                _ => {}
            }
        }
        machine.step(Now::default());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_parsed_or_refused(text in "\\PC{0,200}") {
        run(&text);
    }

    #[test]
    fn any_words_are_parsed_or_refused(words in proptest::collection::vec(proptest::sample::select(WORDS), 0..120)) {
        run(&words.join(" "));
    }

    #[test]
    fn any_action_runs_or_is_refused(words in proptest::collection::vec(proptest::sample::select(WORDS), 0..30)) {
        run(&format!(
            "program p int x; int y[3]; string z; assign x to \"v\"; evflag e; ss s {{ state a {{ when () {{ {} ; }} state a }} }}",
            words.join(" ")
        ));
    }
}

#[test]
fn nesting_is_limited() {
    let body = |text: &str| format!("program p int x; ss s {{ state a {{ when () {{ {text} }} state a }} }}");
    for (open, close) in
        [("(", ")"), ("-", ""), ("{", "}"), ("x+", ""), ("if (x) ", ""), ("x=", ""), ("x ? x : ", ""), ("*&", "")]
    {
        let text = body(&format!("{}x;{}", open.repeat(50_000), close.repeat(50_000)));
        assert!(snl::parse(&text, "p.st", &mut |_, _| None).is_err(), "{open}");
    }
    let bomb = (1..60).fold("#define a0 x x x x\n".to_owned(), |text, nth| {
        format!("{text}#define a{nth} a{} a{} a{}\n", nth - 1, nth - 1, nth - 1)
    });
    assert!(snl::parse(&format!("{bomb}program p int a59;"), "p.st", &mut |_, _| None).is_err());
    let own = &mut |_: &str, name: &str| Some((name.to_owned(), "#include \"a.h\"\n".to_owned()));
    assert!(snl::parse("#include \"a.h\"\n", "p.st", own).is_err());
}

#[test]
fn types_texts_queues_and_state_sets_are_limited() {
    let set = "ss s { state a { when () { } state a } }";
    let local = "int b; double a[10000000][10000000][10000000];";
    let structs = (1..60).fold("struct s0 { int a; };".to_owned(), |text, nth| {
        format!("{text} struct s{nth} {{ struct s{} a, b, c, d; int e; }};", nth - 1)
    });
    let texts = format!("#define t \"{}\"\nprogram p string a = {};", "x".repeat(1_000), "t ".repeat(100_000));
    let pasted = "#define c(x) x##x##x##x##x##x##x##x\n#define d(x) c(x)\nprogram p int ";
    let pasted = format!("{pasted}{}abc{};", "d(".repeat(15), ")".repeat(15));
    let quoted = "#define c(x) #x\n#define d(x) c(x)\nprogram p string a = ";
    let quoted = format!("{quoted}{}\"\\\\\"{};", "d(".repeat(19), ")".repeat(19));
    let sets = |count: u32| -> String {
        (0..count).map(|nth| format!("ss s{nth} {{ state a {{ when () {{ }} state a }} }}\n")).collect()
    };
    for text in [
        format!("program p int a{}; {set}", "[1]".repeat(50_000)),
        format!("program p int a(int x{}); {set}", "[1]".repeat(50_000)),
        format!("program p {local} {set}"),
        format!("program p ss s {{ state a {{ when () {{ {local} }} state a }} }}"),
        format!("program p struct q {{ {local} }}; struct q x; {set}"),
        format!("program p {structs} struct s59 x; {set}"),
        format!("{texts} {set}"),
        format!("{pasted} {set}"),
        format!("{quoted} {set}"),
        format!("program p {}", sets(1_001)),
        format!("program p option +s; double a[1000000]; {}", sets(40)),
        format!("program p double a[1000000]; assign a to \"a\"; monitor a; syncq a 100000; {set}"),
    ] {
        assert!(snl::parse(&text, "p.st", &mut |_, _| None).is_err(), "{}", &text[..60]);
    }
    // Each file includes the next one ten times.
    let many = &mut |_: &str, name: &str| {
        let next = name.trim_matches(|c: char| !c.is_ascii_digit()).parse::<u32>().unwrap() + 1;
        let line = format!("#include \"a{next}.h\"\n");
        Some((name.to_owned(), if next < 19 { line.repeat(10) } else { String::new() }))
    };
    assert!(snl::parse("#include \"a1.h\"\n", "p.st", many).is_err());
}

#[test]
fn numbers_of_lines_and_lengths_in_formats_do_not_overflow() {
    let lines = format!("# 4294967295 \"f\"\n{}program p int a = \"; ", "\n".repeat(100));
    assert!(snl::parse(&lines, "p.st", &mut |_, _| None).is_err());
    let long = "l".repeat(300);
    run(&format!(
        "program p int x; ss s {{ state a {{ when () {{ printf(\"%{long}d %{}d\", 1, 2); sscanf(\"7\", \"%{long}d\", &x); }} state a }} }}",
        "h".repeat(300)
    ));
}
