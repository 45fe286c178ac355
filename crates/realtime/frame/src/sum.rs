//! Sums of budgets that keep their terms.

use crate::spec::Activity;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec;
use alloc::vec::Vec;
use base::DurNs;

/// A sum that counts how often each activity is a term.
pub(crate) struct Sum<'a> {
    activities: &'a [Activity],
    pub(crate) total: DurNs,
    times: Vec<u32>,
    /// Activities in the order in which they were first added.
    order: Vec<u16>,
}

impl<'a> Sum<'a> {
    pub(crate) fn of(activities: &'a [Activity]) -> Self {
        Self { activities, total: DurNs::ZERO, times: vec![0; activities.len()], order: Vec::new() }
    }

    pub(crate) fn clear(&mut self) {
        self.total = DurNs::ZERO;
        for activity in self.order.drain(..) {
            self.times[usize::from(activity)] = 0;
        }
    }

    pub(crate) fn add(&mut self, activity: u16) {
        let times = &mut self.times[usize::from(activity)];
        if *times == 0 {
            self.order.push(activity);
        }
        *times += 1;
        let budget = budget_of(&self.activities[usize::from(activity)]);
        self.total = DurNs(self.total.0.saturating_add(budget.0));
    }

    /// The activity that is the largest term.
    pub(crate) fn largest(&self) -> Option<u16> {
        let size = |activity: &&u16| {
            let at = usize::from(**activity);
            budget_of(&self.activities[at]).0.saturating_mul(i64::from(self.times[at]))
        };
        self.order.iter().rev().max_by_key(size).copied()
    }

    /// The largest terms, in descending order of size.
    pub(crate) fn terms(&self) -> String {
        const SHOWN: usize = 8;
        let term = |activity: u16| {
            let of = &self.activities[usize::from(activity)];
            (of.name.as_str(), budget_of(of), self.times[usize::from(activity)])
        };
        let mut terms: Vec<_> = self.order.iter().map(|activity| term(*activity)).collect();
        terms.sort_by_key(|(_, budget, times)| -budget.0.saturating_mul(i64::from(*times)));
        let show = |(name, budget, times): &(&str, DurNs, u32)| match times {
            1 => format!("{name} {budget}"),
            times => format!("{times} x {name} {budget}"),
        };
        let mut shown: Vec<String> = terms.iter().take(SHOWN).map(show).collect();
        if terms.len() > SHOWN {
            shown.push(format!("{} more", terms.len() - SHOWN));
        }
        shown.join(" + ")
    }
}

pub(crate) fn budget_of(activity: &Activity) -> DurNs {
    activity.budget.unwrap_or(DurNs::ZERO)
}

pub(crate) fn room_of(length: DurNs, reserve: DurNs) -> String {
    match reserve {
        DurNs::ZERO => length.to_string(),
        reserve => format!("{length} - {reserve} reserve = {}", DurNs(length.0 - reserve.0)),
    }
}
