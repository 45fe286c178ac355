//! Converts posts to updates.

use super::answer::build;
use super::handle::next_token;
use super::subscribe::update_now;
use super::{Backend, Post, Server};
use crate::dbr::Dbr;
use crate::encode::Needs;

impl Server {
    /// Processes the post of a field: each subscription with a matching mask receives an update.
    ///
    /// The message is encoded once for consecutive subscriptions of the same type and count, then copied.
    pub fn post(&mut self, post: &Post, backend: &mut impl Backend) {
        let Self { watchers, circuits, touched, scratch, message, limits, .. } = self;
        let Some(list) = watchers.get(&post.watch) else { return };
        let mut encoded: Option<(Dbr, u32, u64)> = None;
        for &(id, key) in list {
            let Some(circuit) = circuits.get_mut(id) else { continue };
            let Some(sub) = circuit.subs.get(key) else { continue };
            if !sub.readable || !sub.mask.meets(post.mask) {
                continue;
            }
            let same = encoded.is_some_and(|(dbr, count, handle)| {
                (dbr, count) == (sub.dbr, sub.count) && (sub.posted || handle == sub.handle)
            });
            if !same {
                let ready = if sub.posted && sub.needs == Needs::Value {
                    Ok(())
                } else {
                    backend.read(sub.handle, sub.needs, scratch, None).map(|_| ())
                };
                if sub.posted {
                    scratch.value.clone_from(&post.value);
                    scratch.alarm = post.alarm;
                    scratch.stamp = post.stamp;
                }
                message.clear();
                build(sub.dbr, sub.count, ready.map(|()| &*scratch), message);
                encoded = Some((sub.dbr, sub.count, sub.handle));
            }
            circuit.push_update(key, message, limits);
            if !circuit.touched {
                circuit.touched = true;
                touched.push(id);
            }
        }
    }

    /// Reads values again that could not be queued before.
    pub(super) fn refresh(&mut self, id: u32, backend: &mut impl Backend) {
        let Some(circuit) = self.circuits.get_mut(id) else { return };
        let limits = self.limits;
        for key in circuit.subs.keys() {
            if let Some(sub) = circuit.subs.get_mut(key)
                && sub.stale
            {
                sub.stale = false;
                circuit.stale -= 1;
                let token = next_token(&mut self.tokens, id);
                update_now(circuit, key, token, &mut self.scratch, &mut self.message, &limits, backend);
            }
            if circuit.out.len() >= circuit.room(&limits) {
                break;
            }
        }
        self.touch(id);
    }
}
