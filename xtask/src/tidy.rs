//! `cargo xtask tidy`: checks the rules of ARCHITECTURE.md.

use crate::run::{Outcome, metadata, output, root};
use crate::wording::{self, Wording};
use crate::{calls, pages, targets};
use proc_macro2::{TokenStream, TokenTree};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};

/// Allowed dependencies of each crate, in addition to `base`, which all crates may use. A crate that is missing here is an error.
const ARROWS: &[(&str, &[&str])] = &[
    ("adaptive", &["kernels", "optics", "ring", "rt", "sys"]),
    ("appliance", &["segment"]),
    ("alarm", &["host", "table"]),
    ("alarmd", &["alarm", "ca", "canet", "host", "keep", "pva", "pvanet", "sys"]),
    ("base", &[]),
    (
        "bench",
        &[
            "adaptive", "broker", "ca", "frame", "gpu", "guest", "host", "keep", "kernels", "msg", "optics", "proc",
            "pva", "recorder", "report", "ring", "rt", "scope", "segment", "store", "sys", "trace",
        ],
    ),
    ("broker", &["msg", "ring", "rt", "sys"]),
    ("ca", &[]),
    ("canet", &["ca", "sys"]),
    ("columns", &["exchange", "segment"]),
    (
        "collect",
        &[
            "alarm",
            "alarmd",
            "broker",
            "ca",
            "canet",
            "cassandra",
            "host",
            "keep",
            "msg",
            "pva",
            "pvanet",
            "ring",
            "rt",
            "segment",
            "store",
            "sys",
        ],
    ),
    (
        "dash",
        &[
            "alarm",
            "alarmd",
            "broker",
            "ca",
            "canet",
            "collect",
            "frame",
            "host",
            "keep",
            "msg",
            "pva",
            "pvanet",
            "recorder",
            "retrieval",
            "ring",
            "rt",
            "scope",
            "settings",
            "store",
            "sys",
            "web",
        ],
    ),
    ("cassandra", &["segment", "store", "sys"]),
    ("db", &[]),
    ("capi", &["broker", "msg", "rt", "sys"]),
    ("em", &["broker", "ca", "canet", "equipment", "fieldbus", "msg", "port", "ring", "rt", "sys", "table"]),
    ("equipment", &["fieldbus", "msg", "table"]),
    ("exchange", &["appliance", "segment", "table"]),
    ("fabric", &["broker", "msg", "sys"]),
    ("fieldbus", &[]),
    ("frame", &[]),
    ("gpu", &[]),
    ("guest", &["sys"]),
    ("harness", &["ca"]),
    ("host", &["frame", "proc", "table"]),
    ("kernels", &[]),
    ("msg", &[]),
    ("optics", &["kernels"]),
    ("snl", &[]),
    ("sys", &[]),
    ("table", &[]),
    ("keep", &["host", "proc", "sys", "ring"]),
    (
        "cli",
        &[
            "adaptive",
            "alarm",
            "alarmd",
            "appliance",
            "bench",
            "broker",
            "cassandra",
            "collect",
            "columns",
            "dash",
            "em",
            "equipment",
            "exchange",
            "fabric",
            "frame",
            "guest",
            "heap",
            "host",
            "sys",
            "keep",
            "ring",
            "rt",
            "retrieval",
            "web",
            "iocd",
            "ca",
            "canet",
            "kernels",
            "msg",
            "optics",
            "proc",
            "profile",
            "pva",
            "pvanet",
            "recorder",
            "report",
            "scope",
            "segment",
            "settings",
            "store",
            "table",
            "trace",
        ],
    ),
    (
        "iocd",
        &[
            "broker", "ca", "canet", "db", "fieldbus", "msg", "port", "pva", "pvanet", "ring", "rt", "snl", "sys",
            "table",
        ],
    ),
    ("port", &["fieldbus", "sys"]),
    ("testkit", &["sys"]),
    ("proc", &[]),
    ("pva", &[]),
    ("pvanet", &["canet", "pva", "sys"]),
    ("report", &[]),
    ("heap", &[]),
    ("profile", &["heap", "trace"]),
    ("recorder", &["proc", "profile", "sys", "trace"]),
    ("retrieval", &["appliance", "segment", "store", "web"]),
    ("ring", &[]),
    ("rt", &["frame", "proc", "ring", "sys"]),
    ("scope", &["rt"]),
    ("segment", &[]),
    ("settings", &["ca", "canet", "db", "pva", "pvanet", "sys", "table"]),
    ("store", &["segment", "sys"]),
    ("trace", &[]),
    // No crate with armed threads may depend on `web`: `rt`, `iocd`, `em`, `broker`, `capi` have no arrow to it.
    ("web", &["sys"]),
    ("xtask", &[]),
];

/// Crates that contain only decisions: they use no file, socket, clock, thread or process.
const PURE: &[&str] = &[
    "appliance",
    "alarm",
    "base",
    "ca",
    "db",
    "equipment",
    "fieldbus",
    "frame",
    "host",
    "kernels",
    "msg",
    "optics",
    "proc",
    "profile",
    "pva",
    "report",
    "ring",
    "segment",
    "snl",
    "table",
    "trace",
];

/// Paths that pure crates must not use.
const IMPURE: &[&str] =
    &["std::fs", "std::net", "std::thread", "std::process", "std::env", "Instant::now", "SystemTime", "std::os"];

/// Crates that may lift the workspace's ban on `unsafe`: system calls, the C interface, vector instructions, and GPU programs.
const UNSAFE: &[&str] = &["sys", "capi", "kernels", "gpu"];

/// A folder or file at the top of a crate, and the others that it may use.
type Room = (&'static str, &'static [&'static str]);

/// Allowed uses between the folders (or files) at the top of a crate. Crates that are not listed are not checked.
const ROOMS: &[(&str, &[Room])] = &[(
    "db",
    &[
        ("text", &[]),
        ("calc", &["text"]),
        ("security", &["calc", "text"]),
        ("model", &["calc", "text"]),
        // The only cycle: processing a record follows its links, and a link processes its target record.
        ("rec", &["calc", "model", "run", "text"]),
        ("run", &["model", "rec", "text"]),
        ("load", &["calc", "model", "rec", "run", "text"]),
        ("report", &["model", "run", "text"]),
    ],
)];

/// Runs every check and reports all findings at once.
pub(crate) fn main() -> Outcome {
    let mut findings = Vec::new();
    let packages = metadata()?;
    dependencies(&packages, &mut findings);
    targets::check(&packages, &mut findings);
    let folders: Vec<(PathBuf, String)> = packages.iter().filter_map(folder).collect();
    let files = files()?;
    pages::check(&files, &mut findings);
    calls::check(&mut findings);
    let (mut prose, mut messages) = (Wording::of_pages(), Wording::of_messages());
    for file in &files {
        let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        if file.extension().is_some_and(|extension| extension == "rs") {
            source(&folders, file, &text, &mut messages, &mut findings);
            wording::type_names(file.strip_prefix(root()).unwrap_or(file), &text, &mut findings);
        } else if !file.ends_with("CHANGELOG.md") {
            prose.page(&text);
        }
    }
    prose.check(&mut findings);
    messages.check(&mut findings);
    if findings.is_empty() {
        println!("tidy");
        return Ok(());
    }
    Err(format!("{} findings\n{}", findings.len(), findings.join("\n")))
}

/// Checks the dependencies between our crates, and that each foreign one has a reason in `docs/develop/dependencies.md`.
fn dependencies(packages: &[Value], findings: &mut Vec<String>) {
    let reasons = fs::read_to_string(root().join("docs/develop/dependencies.md")).unwrap_or_default();
    let ours: Vec<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let Some((_, allowed)) = ARROWS.iter().find(|(from, _)| *from == name) else {
            findings.push(format!("{name}: not in the drawing; add it to ARROWS and to ARCHITECTURE.md"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let (to, kind) = (dependency["name"].as_str().unwrap_or_default(), dependency["kind"].as_str());
            if !ours.contains(&to) {
                if !reasons.contains(&format!("`{to}`")) {
                    findings.push(format!("{name} -> {to}: no line of why in docs/develop/dependencies.md"));
                }
            } else if to != "base" && !allowed.contains(&to) && kind != Some("dev") {
                findings.push(format!("{name} -> {to}: an arrow that is not in the drawing"));
            }
        }
    }
}

/// A package's folder and name.
fn folder(package: &Value) -> Option<(PathBuf, String)> {
    let manifest = Path::new(package["manifest_path"].as_str()?);
    Some((manifest.parent()?.to_owned(), package["name"].as_str()?.to_owned()))
}

/// Checks one source file, except code that is compiled for tests only.
fn source(packages: &[(PathBuf, String)], file: &Path, text: &str, messages: &mut Wording, findings: &mut Vec<String>) {
    let relative = file.strip_prefix(root()).unwrap_or(file);
    let Some((folder, name)) = packages.iter().find(|(folder, _)| file.starts_with(folder)) else { return };
    let parsed = match syn::parse_file(text) {
        Ok(parsed) => parsed,
        Err(error) => {
            findings.push(format!("{}:{}: {error}", relative.display(), error.span().start().line));
            return;
        }
    };
    let mut names = Names::default();
    names.visit_file(&parsed);
    let product = file.strip_prefix(folder).is_ok_and(|inside| inside.starts_with("src"));
    if product && !file.ends_with("tests.rs") {
        names.texts.iter().for_each(|literal| messages.message(literal));
    }
    let module = module(file.strip_prefix(folder.join("src")).unwrap_or(file));
    for (line, path) in &names.paths {
        let mut found = |what: String| findings.push(format!("{}:{line}: {what}", relative.display()));
        if product
            && PURE.contains(&name.as_str())
            && let Some(word) = IMPURE.iter().find(|word| path.starts_with(**word))
        {
            found(format!("{word} in a pure crate; pass it in as an argument"));
        }
        if path == "unsafe_code" && !UNSAFE.contains(&name.as_str()) {
            found(format!("lifts the ban on unsafe, which only {} may", UNSAFE.join(", ")));
        }
        if product && name != "sys" && path.ends_with("SystemTime::now") {
            found("reads the wall clock in a way of its own; use sys::clock::wall_ns".into());
        }
        if product && let Some(why) = arrow(name, &module, path) {
            found(why);
        }
    }
    for (line, function) in names.text_errors.iter().filter(|_| product) {
        let found = format!("`{function}` says by text why it failed; make it a type, and text where it is shown");
        findings.push(format!("{}:{line}: {found}", relative.display()));
    }
}

/// Why a file of `module` must not use `path`; `None` if it may.
fn arrow(name: &str, module: &[String], path: &str) -> Option<String> {
    let (_, rooms) = ROOMS.iter().find(|(of, _)| *of == name)?;
    let from = module.first()?;
    let (_, allowed) = rooms.iter().find(|(room, _)| room == from)?;
    let mut words = path.split("::").peekable();
    let to = match words.next()? {
        "crate" => words.next()?,
        "super" => {
            let mut depth = module.len().checked_sub(1)?;
            while words.next_if_eq(&"super").is_some() {
                depth = depth.checked_sub(1)?;
            }
            if depth == 0 { words.next()? } else { from }
        }
        _ => return None,
    };
    let is_room = rooms.iter().any(|(room, _)| *room == to);
    (is_room && to != from && !allowed.contains(&to))
        .then(|| format!("{from} -> {to}: an arrow between the rooms of {name} that is not in the drawing"))
}

/// The module path of a file below `src`.
fn module(file: &Path) -> Vec<String> {
    let words = file.with_extension("");
    let words = words.iter().map(|word| word.to_string_lossy().into_owned());
    words.filter(|word| !matches!(word.as_str(), "mod" | "lib" | "main")).collect()
}

/// All paths that a file uses outside code for tests, with their lines.
#[derive(Default)]
struct Names {
    paths: Vec<(usize, String)>,
    /// Public functions whose errors are text.
    text_errors: Vec<(usize, String)>,
    /// String literals.
    texts: Vec<String>,
}

impl Names {
    /// Adds the full paths of a `use`.
    fn used(&mut self, before: &str, tree: &syn::UseTree) {
        let whole = |name: &syn::Ident| if before.is_empty() { name.to_string() } else { format!("{before}::{name}") };
        match tree {
            syn::UseTree::Path(path) => self.used(&whole(&path.ident), &path.tree),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.used(before, tree)),
            syn::UseTree::Name(name) => self.paths.push((name.ident.span().start().line, whole(&name.ident))),
            syn::UseTree::Rename(name) => self.paths.push((name.ident.span().start().line, whole(&name.ident))),
            syn::UseTree::Glob(glob) => self.paths.push((glob.star_token.span.start().line, before.to_owned())),
        }
    }

    /// Adds a public function whose error is a `String`.
    fn signature(&mut self, visibility: &syn::Visibility, signature: &syn::Signature) {
        if let (syn::Visibility::Public(_), syn::ReturnType::Type(_, output)) = (visibility, &signature.output)
            && let syn::Type::Path(output) = &**output
            && let Some(last) = output.path.segments.last().filter(|last| last.ident == "Result")
            && let syn::PathArguments::AngleBracketed(arguments) = &last.arguments
            && let Some(syn::GenericArgument::Type(syn::Type::Path(error))) = arguments.args.iter().nth(1)
            && error.path.is_ident("String")
        {
            self.text_errors.push((signature.ident.span().start().line, signature.ident.to_string()));
        }
    }

    /// Adds token sequences that look like paths, from the arguments of macros and attributes.
    fn tokens(&mut self, tokens: TokenStream) {
        let (mut path, mut line) = (String::new(), 0);
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if !path.ends_with("::") {
                        self.tokens_end(&mut path, line);
                        line = ident.span().start().line;
                    }
                    path.push_str(&ident.to_string());
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' && !path.is_empty() => path.push(':'),
                TokenTree::Group(group) => {
                    self.tokens_end(&mut path, line);
                    self.tokens(group.stream());
                }
                TokenTree::Literal(literal) => {
                    self.tokens_end(&mut path, line);
                    if let syn::Lit::Str(text) = syn::Lit::new(literal) {
                        self.texts.push(text.value());
                    }
                }
                TokenTree::Punct(_) => self.tokens_end(&mut path, line),
            }
        }
        self.tokens_end(&mut path, line);
    }

    fn tokens_end(&mut self, path: &mut String, line: usize) {
        if !path.is_empty() {
            self.paths.push((line, std::mem::take(path)));
        }
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.signature(&function.vis, &function.sig);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            self.signature(&function.vis, &function.sig);
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.used("", &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let words: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.paths.push((path.segments.first().map_or(0, |first| first.ident.span().start().line), words.join("::")));
        visit::visit_path(self, path);
    }

    fn visit_lit_str(&mut self, literal: &'ast syn::LitStr) {
        self.texts.push(literal.value());
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        self.tokens(called.tokens.clone());
        visit::visit_macro(self, called);
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        // `forbid` and `deny` list lints, not uses.
        let forbids = ["forbid", "deny"].iter().any(|word| attribute.path().is_ident(word));
        if let syn::Meta::List(list) = &attribute.meta
            && !forbids
        {
            let texts = self.texts.len();
            self.tokens(list.tokens.clone());
            // Only developers read the reason of an exception.
            if ["allow", "expect"].iter().any(|word| attribute.path().is_ident(word)) {
                self.texts.truncate(texts);
            }
        }
    }
}

/// Whether an item is compiled for tests only.
fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else { return attribute.path().is_ident("test") };
        let words = list.tokens.to_string();
        list.path.is_ident("cfg")
            && (words == "test" || words.starts_with("all (test") || words.starts_with("all(test"))
    })
}

/// The attributes of an item that may be compiled for tests only.
fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        _ => &[],
    }
}

/// All Rust and Markdown files of the workspace.
pub(crate) fn files() -> Result<Vec<PathBuf>, String> {
    let words = ["ls-files", "--cached", "--others", "--exclude-standard", "*.rs", "*.md"];
    let listed = output(std::process::Command::new("git").args(words))?;
    Ok(listed.lines().map(|line| root().join(line)).filter(|path| path.exists()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(name: &str, inside: &str, text: &str) -> Vec<String> {
        let folder = root().join("crates/x").join(name);
        let mut findings = Vec::new();
        let mut messages = Wording::of_messages();
        source(&[(folder.clone(), name.to_owned())], &folder.join(inside), text, &mut messages, &mut findings);
        findings
    }

    #[test]
    fn code_after_test_modules_is_checked_and_test_code_is_not() {
        let text = "#[cfg(test)]\nmod tests { use std::fs; }\nuse std::{env, fmt, fs::File};\n// std::net\nfn f() { let _ = \"std::net\"; println!(\"{}\", std::process::id()); }\n";
        let found = findings("ring", "src/a.rs", text);
        let lines: Vec<&str> = found.iter().map(|line| line.split(';').next().unwrap()).collect();
        assert_eq!(
            lines,
            [
                "crates/x/ring/src/a.rs:3: std::env in a pure crate",
                "crates/x/ring/src/a.rs:3: std::fs in a pure crate",
                "crates/x/ring/src/a.rs:5: std::process in a pure crate"
            ]
        );
        assert!(findings("keep", "src/a.rs", text).is_empty());
    }

    #[test]
    fn public_functions_that_return_text_errors_are_findings() {
        let text = "pub fn a() -> Result<(), String> {}\npub(crate) fn b() -> Result<(), String> {}\npub fn c() -> Result<String, E> {}\n\
                    impl X { pub fn d() -> std::result::Result<u8, String> {} }\n#[cfg(test)]\npub fn e() -> Result<(), String> {}\n";
        let found = findings("rt", "src/a.rs", text);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("a.rs:1: `a` says by text") && found[1].contains("a.rs:4: `d`"), "{found:?}");
    }

    #[test]
    fn the_wall_clock_is_read_by_one_function_only() {
        let text = "use std::time::SystemTime;\nfn f() { SystemTime::now(); std::time::SystemTime::now(); }\n";
        assert_eq!(findings("rt", "src/lib.rs", text).len(), 2);
        assert!(findings("sys", "src/clock.rs", text).is_empty());
    }

    #[test]
    fn only_named_crates_lift_the_ban_on_unsafe() {
        let text = "#![allow(unsafe_code, reason = \"why\")]\n";
        assert_eq!(findings("rt", "src/lib.rs", text).len(), 1);
        assert!(findings("sys", "src/lib.rs", text).is_empty());
    }
}
