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
