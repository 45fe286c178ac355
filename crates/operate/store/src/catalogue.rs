//! The files of an archive, compared with its manifest: the files in use, and the problems found.

use crate::archive::Span;
use crate::error::StoreError;
use crate::files::Files;
use crate::manifest::{Listed, MANIFEST, Manifest};
use crate::part::{Numbers, parts};
use segment::manifest::{Closing, Contents};
use segment::rows::{Cause, Gap};
use std::collections::BTreeMap;

/// Maximum attempts to list the files while some appear or disappear.
const TRIES: usize = 1_000;

/// A part of an archive that is damaged, missing, or belongs to another archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub name: String,
    /// Offset in the file and number of bytes.
    pub place: (u64, u64),
    /// Description of the fault.
    pub why: String,
    /// Time span in which samples may be missing; `None` if no sample is missing or the span is unknown.
    pub span: Option<Span>,
    /// Number of missing samples, as far as known.
    pub lost: u64,
}

impl Problem {
    pub(crate) fn new(name: &str, place: (u64, u64), why: impl ToString) -> Self {
        Self { name: name.to_owned(), place, why: why.to_string(), span: None, lost: 0 }
    }

    /// All samples of a file are missing.
    pub(crate) fn whole(numbers: Numbers, contents: Option<Contents>, why: impl ToString) -> Self {
        let problem = Self::new(&numbers.name(), (0, contents.map_or(0, |contents| contents.len)), why);
        let Some(closing) = contents.map(|contents| contents.closing) else {
            return Self { span: Some(Span::ALL), ..problem };
        };
        Self { span: span_of(&closing), lost: closing.samples, ..problem }
    }

    /// Whether samples in a span may be missing. True if the problem's own span is unknown.
    pub(crate) fn is_about(&self, span: Span) -> bool {
        self.span.is_none_or(|own| own.from <= span.to && span.from <= own.to)
    }

    /// The gap that the problem leaves within a span.
    pub(crate) fn gap(&self, span: Span) -> Option<Gap> {
        let own = self.span.filter(|_| self.is_about(span))?;
        Some(Gap { id: None, at: own.from.max(span.from), cause: Cause::Damaged, lost: self.lost })
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (offset, len) = self.place;
        write!(f, "{}: ", self.name)?;
        if len > 0 {
            write!(f, "{len} bytes from byte {offset} on: ")?;
        }
        f.write_str(&self.why)?;
        if self.lost > 0 {
            write!(f, "; {} samples are missing", self.lost)?;
        }
        Ok(())
    }
}

/// Damage of an archive's manifest, which reading the files in order does not find. `None` if the manifest is whole, or the
/// folder has no files yet.
///
/// # Errors
/// The folder or the manifest cannot be read.
pub fn manifest_damage<F: Files>(files: &F) -> Result<Option<Problem>, StoreError> {
    Ok(Catalogue::read(files)?.problems.into_iter().find(|problem| problem.name == MANIFEST))
}

/// The span of a file's samples.
pub(crate) fn span_of(closing: &Closing) -> Option<Span> {
    Some(Span { from: closing.span.0, to: closing.span.1 }).filter(|span| span.from <= span.to)
}

/// A file in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) numbers: Numbers,
    /// Its length.
    pub(crate) len: u64,
    /// The archive that it belongs to, if known.
    pub(crate) archive: Option<u64>,
    /// Its entry in the manifest; `None` if it is not listed.
    pub(crate) listed: Option<Listed>,
}

impl Entry {
    pub(crate) fn contents(&self) -> Option<Contents> {
        self.listed.and_then(|listed| listed.contents)
    }

    /// Whether the end of the file may be missing, because the file is being written or a crash truncated it.
    pub(crate) fn may_be_torn(&self) -> bool {
        self.listed.is_none_or(|listed| listed.contents.is_none_or(|contents| contents.is_left))
    }
}

/// The files of an archive.
pub(crate) struct Catalogue {
    pub(crate) manifest: Manifest,
    /// Files in use, oldest first.
    pub(crate) used: Vec<Entry>,
    /// Remains of an interrupted removal or packing. They are not read; the next start of the logger removes them.
    pub(crate) left: Vec<Numbers>,
    /// Problems found without reading the files.
    pub(crate) problems: Vec<Problem>,
}

impl Catalogue {
    /// Lists the files. Repeats until no file appeared or disappeared meanwhile.
    pub(crate) fn read<F: Files>(files: &F) -> Result<Self, StoreError> {
        let listed = || files.list().map_err(StoreError::io("", "list"));
        let mut before = listed()?;
        for tries in 1.. {
            let manifest = Manifest::load(files)?;
            let after = listed()?;
            if is_same(&before, &after) || tries == TRIES {
                return Ok(Self::of(manifest, after));
            }
            before = after;
        }
        unreachable!("the loop ends after some tries")
    }

    /// Number of the next segment: greater than that of any present or past file.
    pub(crate) fn next(&self) -> u64 {
        let known = self.manifest.live.keys().chain(&self.manifest.gone).chain(&self.left);
        known.chain(self.used.iter().map(|entry| &entry.numbers)).map(|numbers| numbers.last + 1).max().unwrap_or(1)
    }

    fn of(manifest: Manifest, listed: Vec<(String, u64)>) -> Self {
        let has_manifest = listed.iter().any(|(name, _)| name == MANIFEST);
        let named = |(name, len): &(String, u64)| Some((Numbers::of(name)?, *len));
        let there: BTreeMap<Numbers, u64> = listed.iter().filter_map(named).collect();
        let mut all = Self { manifest, used: Vec::new(), left: Vec::new(), problems: Vec::new() };
        if let Some((offset, why)) = all.manifest.damage {
            let len = all.manifest.len - offset.min(all.manifest.len);
            all.problems.push(Problem::new(MANIFEST, (offset, len), why.to_string()));
        } else if !has_manifest && there.values().any(|len| *len > 0) {
            let why = "it is missing: which files are missing, too, is unknown; expected the file that the logger has written";
            all.problems.push(Problem::new(MANIFEST, (0, 0), why));
        }
        if all.manifest.archive.is_none() {
            let (used, left) = parts(listed);
            let entry = |(numbers, len)| Entry { numbers, len, archive: None, listed: None };
            all.used.extend(used.into_iter().map(entry));
            all.left = left;
            return all;
        }
        for (numbers, len) in &there {
            all.add(*numbers, *len, &there);
        }
        let is_missing = |numbers: &&Numbers| !there.contains_key(numbers);
        for numbers in all.manifest.live.keys().filter(is_missing) {
            let contents = all.manifest.live[numbers].contents;
            let why = "the file is missing; expected it in the folder: put it back from a copy";
            all.problems.push(Problem::whole(*numbers, contents, why));
        }
        all.used.sort_by_key(|entry| entry.numbers.first);
        all
    }

    /// Classifies a file of the folder.
    fn add(&mut self, numbers: Numbers, len: u64, there: &BTreeMap<Numbers, u64>) {
        let archive = self.manifest.archive;
        if let Some(listed) = self.manifest.live.get(&numbers) {
            self.used.push(Entry { numbers, len, archive, listed: Some(*listed) });
            return;
        }
        let mut within = self.manifest.live.keys().filter(|other| numbers.holds(**other)).peekable();
        let replaces = numbers.is_pack && within.peek().is_some() && within.all(|other| there.contains_key(other));
        let is_packed = self.manifest.live.keys().any(|pack| pack.is_pack && pack.holds(numbers));
        // An empty file is a segment that was just created and is not listed yet.
        if self.manifest.gone.contains(&numbers) || replaces || is_packed || len == 0 {
            self.left.push(numbers);
            return;
        }
        let why = "the manifest does not list it; expected files that the archive's logger has written: remove it, or put the manifest back from a copy";
        self.problems.push(Problem::new(&numbers.name(), (0, len), why));
        self.used.push(Entry { numbers, len, archive, listed: None });
    }

    /// Runs of files that may become a pack: closed, present, and not known to be damaged. A missing or unusable file ends a run.
    pub(crate) fn packable(&self, below: u64) -> Vec<Vec<(Numbers, u64)>> {
        let mut runs = vec![Vec::new()];
        let missing = |numbers: &Numbers| !self.used.iter().any(|entry| entry.numbers == *numbers);
        let mut barriers: Vec<u64> =
            self.manifest.live.keys().filter(|numbers| missing(numbers)).map(|one| one.first).collect();
        barriers.sort_unstable();
        let mut barriers = barriers.into_iter().peekable();
        for entry in &self.used {
            let is_closed = entry.contents().is_some_and(|contents| contents.is_left || contents.len == entry.len);
            let is_good = is_closed && entry.listed.is_some_and(|listed| !listed.is_damaged);
            let mut is_behind_a_hole = false;
            while barriers.next_if(|first| *first < entry.numbers.first).is_some() {
                is_behind_a_hole = true;
            }
            if is_behind_a_hole || !is_good {
                runs.push(Vec::new());
            }
            if is_good && entry.numbers.last < below {
                runs.last_mut().into_iter().for_each(|run: &mut Vec<_>| run.push((entry.numbers, entry.len)));
            }
        }
        runs.retain(|run| !run.is_empty());
        runs
    }
}

/// Whether both listings have the same names, and the manifest the same length.
fn is_same(one: &[(String, u64)], other: &[(String, u64)]) -> bool {
    let names = |listed: &[(String, u64)]| {
        let key = |(name, len): &(String, u64)| (name.clone(), if name == MANIFEST { *len } else { 0 });
        let mut names: Vec<_> = listed.iter().map(key).collect();
        names.sort_unstable();
        names
    };
    names(one) == names(other)
}
