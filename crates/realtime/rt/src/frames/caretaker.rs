//! The caretaker of a frame: a thread that runs when all activities are blocked.

use crate::frames::shared::Shared;
use base::DurNs;
use ring::{ActivityCounter, FrameCounter, FramePage};
use std::sync::atomic::Ordering;
use sys::futex;

/// Main function of the caretaker, which runs when no thread above it on this CPU does.
pub(crate) fn care(shared: &Shared) {
    let page = shared.page();
    let word = page.care_word();
    while !shared.stop.load(Ordering::Relaxed) {
        // Reset first: a thread that needs the caretaker from now on finds it asleep and wakes it.
        word.store(0, Ordering::SeqCst);
        loop {
            let turn = page.turn();
            let Some(activity) = page.at(turn) else { break };
            let (_, yielded, _) = page.progress(activity.into(), turn.sequence);
            if is_behind(&page, activity.into()) {
                // Background activities run below this thread and need no care.
                break;
            } else if yielded {
                // The activity was interrupted between ending its call and passing the turn on.
                if let Some(next) = page.pass_on(turn) {
                    futex::wake(page.call_word(next.into()));
                }
            } else if shared.slots[usize::from(activity)].parked.load(Ordering::Acquire) {
                // It was parked and its turn has come. It continues at once, before this thread.
                shared.unpark(activity.into());
            } else if Shared::pass_over(&page, turn) {
                page.count(FrameCounter::Blocked, 1);
            }
        }
        futex::wait(word, 0, Some(DurNs::from_ms(100)));
    }
}

/// Whether an activity runs in the background, by configuration or because of its faults.
fn is_behind(page: &FramePage<'_>, activity: usize) -> bool {
    page.activity_counter(activity, ActivityCounter::Budget) == 0
        || page.activity_counter(activity, ActivityCounter::Demoted) > 0
}
