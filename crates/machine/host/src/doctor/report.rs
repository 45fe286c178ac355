//! The report: all findings, and the verdict for each use.

use super::checks::CHECKS;
use super::facts::Facts;
use super::finding::{Effect, How, Remedy, Severity, Use};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// Whether the machine is fit for a use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Nothing stands in its way.
    Fit,
    /// It works, but deadlines may be missed.
    WithReservations,
    /// Deadlines will be missed, or it cannot run at all.
    Unfit,
}

impl Verdict {
    /// The words for people.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Fit => "fit",
            Self::WithReservations => "with reservations",
            Self::Unfit => "unfit",
        }
    }
}

/// What all checks found. Its JSON form is documented in `docs/doctor.md`; [`Report::SCHEMA`] counts
/// its incompatible changes.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Version of the JSON form.
    pub schema: u32,
    /// Whether files of a capture were examined, so that nothing could be tried.
    pub capture: bool,
    /// Release of the kernel, where it is known.
    pub kernel: Option<String>,
    /// The worst verdict of the uses asked for.
    pub verdict: Verdict,
    /// Verdict per use asked for.
    pub uses: Vec<UseReport>,
    /// One entry per check, worst first.
    pub findings: Vec<Entry>,
}

/// The verdict on one use.
#[derive(Clone, Debug, Serialize)]
pub struct UseReport {
    /// The use.
    #[serde(rename = "use")]
    pub wanted: Use,
    /// The verdict.
    pub verdict: Verdict,
    /// The findings that decided it: those that make it unfit, or else all its reservations.
    pub decided_by: Vec<&'static str>,
    /// How many of its reservations `tahti shield apply` removes.
    pub reservations_removed_by_shield: usize,
}

/// One check's finding.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// The check's name.
    pub id: &'static str,
    /// The check's title.
    pub title: &'static str,
    /// How much it weighs.
    pub severity: Severity,
    /// What was found; where that is unknown, why.
    pub evidence: Vec<String>,
    /// What to do about it.
    #[serde(serialize_with = "remedy")]
    pub remedy: Option<Remedy>,
    /// Whether the remedy takes a reboot.
    pub needs_reboot: bool,
    /// What it means for each use.
    pub effects: BTreeMap<Use, Effect>,
}

impl Report {
    /// Version of the JSON form.
    pub const SCHEMA: u32 = 1;
}

/// Runs every check on the facts and judges the `wanted` uses.
#[must_use]
pub fn examine(facts: &Facts, wanted: &[Use]) -> Report {
    let mut findings: Vec<Entry> = CHECKS
        .iter()
        .map(|check| {
            let about = check.about();
            let entry = |severity, evidence, remedy: Option<Remedy>, effect: &dyn Fn(Use) -> Effect| Entry {
                id: about.id,
                title: about.title,
                severity,
                evidence,
                needs_reboot: remedy.as_ref().is_some_and(Remedy::needs_reboot),
                remedy,
                effects: Use::ALL.into_iter().map(|wanted| (wanted, effect(wanted))).collect(),
            };
            match check.look(facts) {
                Ok(found) => {
                    let effect = |wanted| found.effect(wanted);
                    entry(found.severity(), found.evidence.clone(), found.remedy.clone(), &effect)
                }
                Err(why) => entry(Severity::Unknown, vec![why.0], None, &|wanted| {
                    if about.decides.contains(&wanted) { Effect::Reservation } else { Effect::None }
                }),
            }
        })
        .collect();
    // The sort is stable: within a severity the table's order stays.
    findings.sort_by_key(|entry| std::cmp::Reverse(entry.severity));
    let uses: Vec<UseReport> = wanted.iter().map(|&wanted| judge(wanted, &findings)).collect();
    Report {
        schema: Report::SCHEMA,
        capture: facts.files.is_capture(),
        kernel: facts.files.text("/proc/sys/kernel/osrelease").ok().map(|text| text.trim().to_owned()),
        verdict: uses.iter().map(|judged| judged.verdict).max().unwrap_or(Verdict::Fit),
        uses,
        findings,
    }
}

fn judge(wanted: Use, findings: &[Entry]) -> UseReport {
    let with = |effect: Effect| findings.iter().filter(move |entry| entry.effects[&wanted] == effect);
    let (verdict, effect) = match findings.iter().map(|entry| entry.effects[&wanted]).max() {
        Some(Effect::Unfit) => (Verdict::Unfit, Effect::Unfit),
        Some(Effect::Reservation) => (Verdict::WithReservations, Effect::Reservation),
        _ => (Verdict::Fit, Effect::Unfit),
    };
    let by_shield = |entry: &&Entry| entry.remedy.as_ref().is_some_and(|remedy| remedy.how == How::Shield);
    UseReport {
        wanted,
        verdict,
        decided_by: with(effect).map(|entry| entry.id).collect(),
        reservations_removed_by_shield: with(Effect::Reservation).filter(by_shield).count(),
    }
}

fn remedy<S: Serializer>(remedy: &Option<Remedy>, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Form<'a> {
        how: How,
        text: &'a str,
    }
    remedy.as_ref().map(|remedy| Form { how: remedy.how, text: &remedy.text }).serialize(serializer)
}
