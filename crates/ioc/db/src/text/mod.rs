//! File syntax without a database: lexer, JSON, macros, substitutions, conversion of numbers and stamps, autosave files.

pub(crate) mod conv;
pub(crate) mod error;
pub(crate) mod json;
pub(crate) mod lex;
pub(crate) mod local;
pub(crate) mod macros;
pub(crate) mod outline;
pub(crate) mod saved;
pub(crate) mod substitutions;
