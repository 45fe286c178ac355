//! The page's files, compressed once for browsers that support it.

use std::sync::LazyLock;
use web::Answer;

macro_rules! file {
    ($path:literal, $kind:literal) => {
        ($path, $kind, include_bytes!(concat!("../page/", $path)))
    };
}

/// The page's files. There is no build step, and no external resource.
const FILES: &[(&str, &str, &[u8])] = &[
    file!("index.html", "text/html; charset=utf-8"),
    file!("style.css", "text/css; charset=utf-8"),
    file!("icon.svg", "image/svg+xml"),
    file!("icon-degraded.svg", "image/svg+xml"),
    file!("icon-failed.svg", "image/svg+xml"),
    file!("main.js", "text/javascript; charset=utf-8"),
    file!("dom.js", "text/javascript; charset=utf-8"),
    file!("panels.js", "text/javascript; charset=utf-8"),
    file!("frame.js", "text/javascript; charset=utf-8"),
    file!("palette.js", "text/javascript; charset=utf-8"),
    file!("figures.js", "text/javascript; charset=utf-8"),
    file!("draw.js", "text/javascript; charset=utf-8"),
    file!("panels/overview.js", "text/javascript; charset=utf-8"),
    file!("panels/processes.js", "text/javascript; charset=utf-8"),
    file!("panels/shield.js", "text/javascript; charset=utf-8"),
    file!("panels/latency.js", "text/javascript; charset=utf-8"),
    file!("panels/frames.js", "text/javascript; charset=utf-8"),
    file!("panels/alarms.js", "text/javascript; charset=utf-8"),
    file!("panels/signals.js", "text/javascript; charset=utf-8"),
    file!("panels/settings.js", "text/javascript; charset=utf-8"),
    file!("panels/scope.js", "text/javascript; charset=utf-8"),
    file!("scope/draw.js", "text/javascript; charset=utf-8"),
    file!("alarms/figures.js", "text/javascript; charset=utf-8"),
    file!("shield/lanes.js", "text/javascript; charset=utf-8"),
    file!("signals/chart.js", "text/javascript; charset=utf-8"),
    file!("signals/time.js", "text/javascript; charset=utf-8"),
    file!("signals/trace.js", "text/javascript; charset=utf-8"),
    file!("latency/compare.js", "text/javascript; charset=utf-8"),
    file!("panels/logs.js", "text/javascript; charset=utf-8"),
    file!("panels/messages.js", "text/javascript; charset=utf-8"),
    file!("vendor/uPlot.iife.min.js", "text/javascript; charset=utf-8"),
    file!("vendor/uPlot.min.css", "text/css; charset=utf-8"),
    file!("vendor/uPlot.LICENSE", "text/plain; charset=utf-8"),
];

/// The same files as zlib streams, in the same order: 291 kB become 108 kB.
static PACKED: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let pack = |(_, _, bytes): &(_, _, &[u8])| miniz_oxide::deflate::compress_to_vec_zlib(bytes, 9);
    FILES.iter().map(pack).collect()
});

/// Whether an `accept-encoding` header contains the encoding of [`PACKED`].
pub(crate) fn accepts_deflate(encodings: Option<&str>) -> bool {
    encodings.is_some_and(|all| all.split(',').any(|one| one.trim() == "deflate"))
}

/// The file of a path; `/` is the page. `encodings` is the `accept-encoding` header of the request.
pub(crate) fn answer(path: &str, encodings: Option<&str>) -> Answer {
    let name = if path == "/" { "index.html" } else { path.strip_prefix('/').unwrap_or(path) };
    let Some(at) = FILES.iter().position(|(file, _, _)| *file == name) else {
        return Answer::text(404, "not here");
    };
    let (_, kind, bytes) = FILES[at];
    if !accepts_deflate(encodings) {
        return Answer::new(200, kind, bytes);
    }
    Answer::new(200, kind, PACKED[at].as_slice()).with_header("content-encoding", "deflate")
}

#[cfg(test)]
mod tests {
    use super::*;
    use web::Body;

    #[test]
    fn a_browser_loads_the_page_in_less_than_150_kb() {
        let bytes = |path: &str, encodings| {
            let answer = answer(path, encodings);
            let is_packed = answer.headers.contains(&("content-encoding", "deflate".to_owned()));
            match answer.body {
                Body::Whole(bytes) => (is_packed, bytes.into_owned()),
                Body::Parts(_) => panic!("{path} is sent in parts"),
            }
        };
        let mut sum = 0;
        for (path, _, plain) in FILES {
            let (is_packed, packed) = bytes(&format!("/{path}"), Some("gzip, deflate, br"));
            assert!(is_packed, "{path}");
            assert_eq!(&miniz_oxide::inflate::decompress_to_vec_zlib(&packed).unwrap(), plain, "{path}");
            assert_eq!(bytes(&format!("/{path}"), Some("gzip")), (false, plain.to_vec()), "{path}");
            sum += packed.len();
        }
        assert!(sum < 150_000, "{sum} bytes");
    }

    #[test]
    fn every_file_of_the_page_is_served_and_nothing_is_fetched_from_elsewhere() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/page");
        let mut folders = vec![std::path::PathBuf::from(page)];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let name = path.strip_prefix(page).unwrap().to_str().unwrap().to_owned();
                assert!(FILES.iter().any(|(file, _, _)| *file == name), "{name} is not in FILES");
                let text = std::fs::read_to_string(&path).unwrap();
                // The SVG namespace is not a link.
                let text = text.replace("http://www.w3.org/2000/svg", "");
                let elsewhere = text.contains("http://") || text.contains("https://");
                // Exclude the library and its licence.
                assert!(name.starts_with("vendor/") || !elsewhere, "{name}");
            }
        }
    }
}
