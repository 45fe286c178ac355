//! Gaps, reported with the next sample.

use segment::rows::{Cause, Gap};
use std::iter::Peekable;
use std::vec::IntoIter;

const SECOND: i64 = 1_000_000_000;

/// Samples before a row are missing because they are unreadable.
pub(crate) fn is_damage(fields: &[(String, String)]) -> bool {
    let damaged = Cause::Damaged.to_string();
    fields.iter().any(|(name, causes)| name == "gap" && causes.split(", ").any(|cause| cause == damaged))
}

/// Damage before skipped rows. The next emitted row reports it.
#[derive(Default)]
pub(crate) struct Carried(Vec<(String, String)>);

impl Carried {
    /// Keeps the damage of a skipped row.
    pub(crate) fn keep(&mut self, fields: Vec<(String, String)>) {
        if self.0.is_empty() && is_damage(&fields) {
            self.0 = fields;
        }
    }

    /// Adds the damage to the fields of an emitted row.
    pub(crate) fn add_to(&mut self, fields: &mut Vec<(String, String)>) {
        for (name, value) in std::mem::take(&mut self.0).into_iter().filter(|(name, _)| name == "gap" || name == "lost")
        {
            match fields.iter_mut().find(|(known, _)| *known == name) {
                Some((_, known)) if name == "gap" => *known = format!("{value}, {known}"),
                Some(_) => {}
                None => fields.push((name, value)),
            }
        }
    }
}

/// Gaps of a signal that have not been reported.
pub(crate) struct Gaps {
    left: Peekable<IntoIter<Gap>>,
    /// Gaps up to this time have been reported. Damage is tracked separately, because it can start before the requested span.
    reported: i64,
    damage_reported: i64,
    /// Read error since the last sample.
    unread: Option<String>,
}

impl Gaps {
    /// Gaps after an instant, and damage at or after it.
    pub(crate) fn after(at: i64, gaps: Vec<Gap>) -> Self {
        let left = Vec::new().into_iter().peekable();
        let mut new = Self { left, reported: at, damage_reported: at.saturating_sub(1), unread: None };
        new.renew(gaps);
        new
    }

    /// Replaces the gaps, after reading has detected further damage.
    pub(crate) fn renew(&mut self, mut gaps: Vec<Gap>) {
        let reported = |gap: &Gap| if gap.cause == Cause::Damaged { self.damage_reported } else { self.reported };
        gaps.retain(|gap| gap.at > reported(gap));
        self.left = gaps.into_iter().peekable();
    }

    /// Records that samples are missing because of a read error.
    pub(crate) fn unread(&mut self, why: String) {
        self.unread = Some(why);
    }

    /// Takes the read error since the last sample, if any.
    pub(crate) fn take_unread(&mut self) -> Option<String> {
        self.unread.take()
    }

    /// Fields to report with a sample: those of the Archiver Appliance, if it has one for the cause (connection lost and regained, startup,
    /// resume), and all causes as text in `gap`.
    pub(crate) fn before_sample(&mut self, at: i64) -> Vec<(String, String)> {
        let mut fields = Vec::new();
        let mut field = |name: &str, value: String| {
            if !fields.iter().any(|(known, _)| known == name) {
                fields.push((name.to_owned(), value));
            }
        };
        let (mut causes, mut lost) = (Vec::new(), 0u64);
        self.reported = self.reported.max(at);
        self.damage_reported = self.damage_reported.max(at);
        while let Some(gap) = self.left.next_if(|gap| gap.at <= at) {
            match gap.cause {
                Cause::Disconnected => {
                    field("cnxlostepsecs", gap.at.div_euclid(SECOND).to_string());
                    field("cnxregainedepsecs", at.div_euclid(SECOND).to_string());
                }
                Cause::Started => field("startup", "true".into()),
                Cause::Paused => field("resume", "true".into()),
                _ => {}
            }
            causes.push(gap.cause.to_string());
            lost = lost.saturating_add(gap.lost);
        }
        if let Some(why) = self.unread.take() {
            causes.extend([Cause::Damaged.to_string(), why]);
        }
        causes.dedup();
        if !causes.is_empty() {
            field("gap", causes.join(", "));
        }
        if lost > 0 {
            field("lost", lost.to_string());
        }
        fields
    }

    /// Fields to report with a bin that ends before `end`: a gap in it or before it.
    pub(crate) fn before_bin_ends(&mut self, end: i64) -> Vec<(String, String)> {
        let reported = self.before_sample(end.saturating_sub(1));
        let mut fields: Vec<_> = reported.into_iter().filter(|(name, _)| name == "gap" || name == "lost").collect();
        if !fields.is_empty() {
            fields.insert(0, ("connectionChange".into(), "true".into()));
        }
        fields
    }
}
