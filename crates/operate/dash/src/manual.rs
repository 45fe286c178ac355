//! The documentation as HTML pages, below `/docs` of the dashboard and for `tahti docs`.
//!
//! A release build contains the Markdown files; a development build reads them from the source tree, so that a changed page needs
//! no build. Pages have no script and no inline style, as the dashboard's content security policy demands. The pages for
//! developers are left out.

use pulldown_cmark::{CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use rust_embed::RustEmbed;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::LazyLock;

/// Files of the documentation, with their paths below `docs`.
#[derive(RustEmbed)]
#[folder = "../../../docs"]
#[include = "*.md"]
#[include = "*.svg"]
#[exclude = "develop/*"]
struct Source;

const STYLE: &str = include_str!("manual.css");

/// Names and titles of all pages, by name.
static TITLES: LazyLock<BTreeMap<Cow<'static, str>, String>> = LazyLock::new(|| {
    let title = |name: &str| {
        let text = text(name).unwrap_or_default();
        text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or(name).replace('`', "")
    };
    let pages = Source::iter().filter(|name| name.ends_with(".md"));
    pages.map(|name| (name.clone(), title(&name))).collect()
});

/// Folders with pages, in the order of the contents, and their titles.
const SECTIONS: [(&str, &str); 5] = [
    ("tutorials/", "Tutorials"),
    ("how-to/", "How-to guides"),
    ("reference/", "Reference"),
    ("reference/plant/", "Plant file"),
    ("explanation/", "Explanation"),
];

/// A file of the documentation, ready to be served.
pub struct Manual {
    /// MIME type.
    pub kind: &'static str,
    /// Content.
    pub bytes: Cow<'static, [u8]>,
}

/// Paths of all files: pages end with `.html`. `index.html` is the first page.
#[must_use]
pub fn paths() -> Vec<String> {
    let mut all: Vec<String> = Source::iter().map(|name| path_of(&name)).chain(["manual.css".to_owned()]).collect();
    all.sort_unstable();
    all
}

/// The file of a path.
#[must_use]
pub fn file(path: &str) -> Option<Manual> {
    if path == "manual.css" {
        return Some(Manual { kind: "text/css; charset=utf-8", bytes: STYLE.as_bytes().into() });
    }
    if path.ends_with(".svg") {
        return Source::get(path).map(|file| Manual { kind: "image/svg+xml", bytes: file.data });
    }
    let name = name_of(path)?;
    let text = text(&name)?;
    Some(Manual { kind: "text/html; charset=utf-8", bytes: page(&name, &text).into_bytes().into() })
}

fn text(name: &str) -> Option<String> {
    String::from_utf8(Source::get(name)?.data.into_owned()).ok()
}

/// Path of a source file: the page of a Markdown file, any other file itself.
fn path_of(name: &str) -> String {
    match name.strip_suffix(".md") {
        Some("README") => "index.html".to_owned(),
        Some(stem) => format!("{stem}.html"),
        None => name.to_owned(),
    }
}

/// Source file of a page.
fn name_of(path: &str) -> Option<String> {
    match path.strip_suffix(".html")? {
        "index" => Some("README.md".to_owned()),
        stem => Some(format!("{stem}.md")),
    }
}

/// The file that a relative link names from a page; `None` if it leads out of the documentation.
fn resolve(from: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    let name = parts.join("/");
    Source::iter().any(|one| one == name).then_some(name)
}

/// A link of the page `from` as it leads to a page; `None` if its target is not a part of this documentation.
fn link(from: &str, target: &str) -> Option<String> {
    if target.starts_with('#') || target.contains("://") || target.starts_with("mailto:") {
        return Some(target.to_owned());
    }
    let (file, place) =
        target.split_once('#').map_or((target, String::new()), |(file, place)| (file, format!("#{place}")));
    Some(format!("{}{}{place}", up(from), path_of(&resolve(from, file)?)))
}

/// The way from a page to the root of the documentation.
fn up(name: &str) -> String {
    "../".repeat(name.matches('/').count())
}

/// The identifier of a heading, as in links on GitHub.
fn slug(heading: &str, used: &mut HashMap<String, u32>) -> String {
    let letters = heading.to_lowercase();
    let slug: String = letters
        .chars()
        .filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'))
        .map(|letter| if letter == ' ' { '-' } else { letter })
        .collect();
    let count = used.entry(slug.clone()).and_modify(|count| *count += 1).or_insert(0);
    if *count == 0 { slug } else { format!("{slug}-{count}") }
}

/// A heading with its identifier.
struct Heading {
    level: HeadingLevel,
    id: String,
    text: String,
}

/// A page as HTML.
fn page(name: &str, text: &str) -> String {
    let (body, headings) = body(name, text);
    let title = headings.first().map_or("Documentation", |heading| heading.text.as_str());
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{} – tahti</title>\n\
         <link rel=\"stylesheet\" href=\"{up}manual.css\">\n</head>\n<body>\n\
         <header><a href=\"{up}index.html\">tahti documentation</a></header>\n{}<main>\n{body}</main>\n",
        escaped(title),
        contents(name),
        up = up(name),
    );
    let here: Vec<&Heading> = headings.iter().filter(|heading| heading.level == HeadingLevel::H2).collect();
    if here.len() > 1 {
        html += "<aside aria-label=\"On this page\"><ul>\n";
        for Heading { id, text, .. } in here {
            let _ = writeln!(html, "<li><a href=\"#{id}\">{}</a></li>", escaped(text));
        }
        html += "</ul></aside>\n";
    }
    html + "</body>\n</html>\n"
}

/// The contents: all pages by section, the one of the page open.
fn contents(name: &str) -> String {
    let mut html = "<nav aria-label=\"Contents\">\n".to_owned();
    for (folder, title) in SECTIONS {
        let own = |name: &str| name.strip_prefix(folder).is_some_and(|rest| !rest.contains('/'));
        let _ = writeln!(html, "<details{}><summary>{title}</summary><ul>", if own(name) { " open" } else { "" });
        for (one, title) in TITLES.iter().filter(|(name, _)| own(name)) {
            let current = if one == name { " aria-current=\"page\"" } else { "" };
            let _ = writeln!(html, "<li><a href=\"{}{}\"{current}>{}</a></li>", up(name), path_of(one), escaped(title));
        }
        html += "</ul></details>\n";
    }
    html + "</nav>\n"
}

/// The body of a page, and its headings.
fn body(name: &str, text: &str) -> (String, Vec<Heading>) {
    let mut events: Vec<Event<'_>> = Parser::new_ext(text, Options::ENABLE_TABLES).collect();
    let (mut headings, mut used) = (Vec::new(), HashMap::new());
    for at in 0..events.len() {
        let Event::Start(Tag::Heading { level, .. }) = events[at] else { continue };
        let inner = events[at + 1..].iter().take_while(|event| !matches!(event, Event::End(TagEnd::Heading(_))));
        let text: String = inner
            .filter_map(|event| match event {
                Event::Text(text) | Event::Code(text) => Some(&**text),
                _ => None,
            })
            .collect();
        let found = slug(&text, &mut used);
        if let Event::Start(Tag::Heading { id, .. }) = &mut events[at] {
            *id = Some(CowStr::from(found.clone()));
        }
        headings.push(Heading { level, id: found, text });
    }
    // Whether each open link and image is kept.
    let mut kept = Vec::new();
    let events = events.into_iter().filter_map(|event| match event {
        Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
            let target = link(name, &dest_url);
            kept.push(target.is_some());
            target.map(|target| Event::Start(Tag::Link { link_type, dest_url: target.into(), title, id }))
        }
        // An image that is not a part of the documentation is replaced by its description.
        Event::Start(Tag::Image { link_type, dest_url, title, id }) => {
            let target = link(name, &dest_url).filter(|_| !dest_url.contains("://"));
            kept.push(target.is_some());
            target.map(|target| Event::Start(Tag::Image { link_type, dest_url: target.into(), title, id }))
        }
        Event::End(TagEnd::Link | TagEnd::Image) => kept.pop().unwrap_or(true).then_some(event),
        event => Some(event),
    });
    let mut html = String::new();
    pulldown_cmark::html::push_html(&mut html, events);
    // Tables scroll on their own, so that a phone does not scroll the page.
    (html.replace("<table>", "<div class=\"table\"><table>").replace("</table>", "</table></div>"), headings)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn html(path: &str) -> String {
        String::from_utf8(file(path).unwrap_or_else(|| panic!("{path}")).bytes.into_owned()).unwrap()
    }

    /// Values of an attribute.
    fn values<'t>(html: &'t str, attribute: &str) -> Vec<&'t str> {
        let start = format!(" {attribute}=\"");
        html.match_indices(&start).filter_map(|(at, _)| html[at + start.len()..].split('"').next()).collect()
    }

    /// The path to which a link of a page leads.
    fn target(path: &str, relative: &str) -> String {
        if relative.is_empty() {
            return path.to_owned();
        }
        let mut parts: Vec<&str> = path.split('/').collect();
        parts.pop();
        for part in relative.split('/') {
            if part == ".." {
                parts.pop().expect("a link stays within the documentation");
            } else {
                parts.push(part);
            }
        }
        parts.join("/")
    }

    #[test]
    fn every_link_of_every_page_leads_to_a_place_that_exists() {
        let all: BTreeMap<String, String> = paths()
            .into_iter()
            .map(|path| (path.clone(), if path.ends_with(".html") { html(&path) } else { String::new() }))
            .collect();
        let ids: BTreeMap<&str, Vec<&str>> =
            all.iter().map(|(path, page)| (path.as_str(), values(page, "id"))).collect();
        assert!(all.len() > 60, "{:?}", all.keys());
        for (path, page) in &all {
            for link in values(page, "href").into_iter().chain(values(page, "src")) {
                if link.contains("://") || link.starts_with("mailto:") {
                    continue;
                }
                let (relative, place) = link.split_once('#').unwrap_or((link, ""));
                let to = target(path, relative);
                let found = ids.get(to.as_str()).unwrap_or_else(|| panic!("{path}: {link}"));
                assert!(place.is_empty() || found.contains(&place), "{path}: {link}");
            }
        }
    }

    #[test]
    fn a_page_has_no_script_and_no_inline_style() {
        for path in paths().into_iter().filter(|path| path.ends_with(".html")) {
            let page = html(&path);
            for forbidden in ["<script", " style=", "<style", " onclick", "javascript:"] {
                assert!(!page.contains(forbidden), "{path}: {forbidden}");
            }
        }
    }

    #[test]
    fn pages_are_found_below_their_folder_and_nothing_else_is() {
        assert!(html("index.html").contains("<a href=\"tutorials/first-plant.html\""));
        let page = html("reference/plant/process.html");
        assert!(page.contains("href=\"../../manual.css\"") && page.contains("aria-current=\"page\""), "{page}");
        for absent in
            ["", "index", "README.md", "../Cargo.toml", "develop/archive.html", "reference/", "a.html", "/index.html"]
        {
            assert!(file(absent).is_none(), "{absent}");
        }
    }
}
