//! The guard with cgroup v2, whose groups can be frozen and killed.

mod freezer;

use testkit::guest;

#[test]
fn a_runaway_is_frozen_and_killed_through_its_group_with_its_descendants() {
    guest::required();
    freezer::freezes_and_kills("/sys/fs/cgroup", "3", true);
}
