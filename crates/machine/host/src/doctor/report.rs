//! The report: all findings, and the verdict for each use.

use super::checks::CHECKS;
use super::facts::Facts;
use super::finding::{Effect, Remedy, RemedyKind, Severity, Use};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// Whether the machine is fit for a use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// No finding is against it.
    Fit,
    /// The use works, but deadlines may be missed.
    WithReservations,
    /// Deadlines will be missed, or the use is impossible.
    Unfit,
}

impl Verdict {
    /// Name for users.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Fit => "fit",
            Self::WithReservations => "with reservations",
            Self::Unfit => "unfit",
        }
    }
}

/// Results of all checks. The JSON form is documented in `docs/reference/doctor.md`. [`Report::SCHEMA`] is incremented with each
/// incompatible change.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Version of the JSON form.
    pub schema: u32,
    /// Whether the files come from a capture. No probe was possible then.
    pub capture: bool,
    /// Release of the kernel, if known.
    pub kernel: Option<String>,
    /// The worst verdict of the requested uses.
    pub verdict: Verdict,
    /// Verdict per requested use.
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
    /// The findings that decided the verdict: those that make the use unfit, or otherwise all its reservations.
    pub decided_by: Vec<&'static str>,
    /// Number of its reservations that `tahti shield apply` removes.
    pub reservations_removed_by_shield: usize,
}

/// One check's finding.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// The check's name.
    pub id: &'static str,
    /// The check's title.
    pub title: &'static str,
    /// Severity of the finding.
    pub severity: Severity,
    /// Evidence; if the result is unknown, the reason.
    pub evidence: Vec<String>,
    /// The remedy, if there is one.
    #[serde(serialize_with = "remedy")]
    pub remedy: Option<Remedy>,
    /// Whether the remedy needs a reboot.
    pub needs_reboot: bool,
    /// Effect on each use.
    pub effects: BTreeMap<Use, Effect>,
}

impl Report {
    /// Version of the JSON form.
    pub const SCHEMA: u32 = 1;
}

/// Runs every check on the facts and determines the verdict for each use in `wanted`.
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
    // The sort is stable: findings of the same severity keep the order of the table.
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
    let by_shield = |entry: &&Entry| entry.remedy.as_ref().is_some_and(|remedy| remedy.how == RemedyKind::Shield);
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
        how: RemedyKind,
        text: &'a str,
    }
    remedy.as_ref().map(|remedy| Form { how: remedy.how, text: &remedy.text }).serialize(serializer)
}
