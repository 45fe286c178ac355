//! Programs of the State Notation Language (SNL), as of EPICS' sequencer: parsed, checked, and interpreted.
//!
//! The crate is pure: it opens no file or socket, reads no clock and starts no thread. [`parse()`] compiles a program.
//! [`Machine`] runs an instance of it: [`Event`]s and the time go in, [`Action`]s and the next wake-up come out.
//!
//! Invariants: no text, event or program causes a panic; memory, recursion and the work of one step are bounded; every
//! access of a program to its memory is checked, and an error ends the program with its place.
//!
//! Start with `machine` and `run` for the semantics, `compile` for the language, `builtin` for the functions.
//!
//! ```
//! use snl::{Action, Event, Machine, Now};
//! use std::sync::Arc;
//!
//! let text = "program p(\"P=X:\") int n; assign n to \"{P}n\";\n\
//!     ss s { state up { when (delay(1)) { n += 2; pvPut(n); } state up } }";
//! let program = snl::parse(text, "p.st", &mut |_, _| None).unwrap();
//! let mut machine = Machine::new(Arc::new(program), "P=Y:", Now::default());
//! machine.start(Now::default());
//! assert_eq!(machine.take_actions(), [Action::Connect(0, "Y:n".into())]);
//! machine.handle(Event::Connected(0, 1));
//! let later = machine.step(Now::default());
//! assert_eq!(later, Some(base::MonoNs(1_000_000_000)));
//! ```
#![forbid(unsafe_code)]

mod ast;
mod builtin;
mod call;
mod code;
mod compile;
mod error;
mod format;
mod lex;
mod machine;
mod memory;
mod parse;
mod pre;
mod report;
mod run;
mod values;
mod vm;

pub use code::Program;
pub use error::{SnlError, SnlErrors};
pub use machine::{Action, Event, Machine, Now, Stage};
pub use pre::Include;
pub use report::{ChannelStatus, SetStatus};

/// Maximum number of bytes of a file.
const TEXT_MAX: usize = 16 << 20;

/// Parses, checks and compiles a program. `include` reads included files.
///
/// # Errors
/// All errors of the program with their places, or the first one that the parser finds.
pub fn parse<'a>(text: &str, file: &str, include: &'a mut Include<'a>) -> Result<Program, SnlErrors> {
    let mut preprocessor = pre::Preprocessor::new(include);
    let compiled = if text.len() > TEXT_MAX {
        Err(vec![SnlError::new(error::Pos { file: 0, line: 1 }, format!("found more than {TEXT_MAX} bytes"))])
    } else {
        let tree = preprocessor.run(text, file).and_then(|tokens| parse::Parser::new(tokens).program());
        let files = preprocessor.files.clone();
        tree.map_err(|error| vec![error]).and_then(|tree| compile::compile(&tree, files))
    };
    compiled.map_err(|errors| {
        let name = |error: SnlError| {
            let named = preprocessor.files.get(usize::from(error.number)).map_or(file, String::as_str);
            SnlError { file: named.to_owned(), ..error }
        };
        SnlErrors(errors.into_iter().map(name).collect())
    })
}
