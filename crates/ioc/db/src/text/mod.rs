//! File syntax without a database: lexer, macros, substitutions, conversion of numbers and stamps, autosave files.

pub(crate) mod conv;
pub(crate) mod error;
pub(crate) mod lex;
pub(crate) mod local;
pub(crate) mod macros;
pub(crate) mod outline;
pub(crate) mod saved;
pub(crate) mod substitutions;
