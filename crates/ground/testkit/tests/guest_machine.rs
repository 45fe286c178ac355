//! Checks that each guest is the machine that its row in the table describes.

use testkit::guest;

mod all {
    use super::*;

    #[test]
    fn four_cpus_run() {
        guest::required();
        assert_eq!(guest::read("/sys/devices/system/cpu/online"), "0-3");
    }

    #[test]
    fn the_disk_and_the_network_card_have_interrupts() {
        guest::required();
        let interrupts = guest::read("/proc/interrupts");
        assert!(interrupts.contains("virtio0-") && interrupts.contains("-req."), "{interrupts}");
        assert!(interrupts.contains("-input.0"), "{interrupts}");
    }
}

mod plain {
    use super::*;

    #[test]
    fn an_isolated_partition_holds_two_cpus() {
        guest::required();
        let group = "/sys/fs/cgroup/trial";
        guest::write("/sys/fs/cgroup/cgroup.subtree_control", "+cpuset");
        std::fs::create_dir(group).expect("a cgroup can be made");
        guest::write(&format!("{group}/cpuset.cpus"), "2-3");
        guest::write(&format!("{group}/cpuset.cpus.partition"), "isolated");
        assert_eq!(guest::read(&format!("{group}/cpuset.cpus.partition")), "isolated");
        assert_eq!(guest::read("/sys/fs/cgroup/cpuset.cpus.effective"), "0-1");
        guest::write(&format!("{group}/cpuset.cpus.partition"), "member");
        std::fs::remove_dir(group).expect("an empty cgroup can be removed");
        assert_eq!(guest::read("/sys/fs/cgroup/cpuset.cpus.effective"), "0-3");
    }
}

mod v1 {
    use super::*;

    #[test]
    fn cpuset_is_a_separate_hierarchy() {
        guest::required();
        assert_eq!(guest::read("/sys/fs/cgroup/cpuset/cpuset.cpus"), "0-3");
        assert_eq!(guest::read("/sys/devices/system/cpu/isolated"), "3");
    }
}

mod systemd {
    use super::*;

    #[test]
    fn systemd_is_the_first_process_and_owns_the_cgroups() {
        guest::required();
        assert_eq!(guest::read("/proc/1/comm"), "systemd");
        assert_eq!(guest::read("/proc/1/cgroup"), "0::/init.scope");
        assert_eq!(guest::read("/proc/self/cgroup"), "0::/system.slice/tahti-tests.service");
        let output = std::process::Command::new("systemctl").args(["is-active", "tahti-tests.target"]).output();
        let said = String::from_utf8(output.expect("systemctl can be run").stdout).expect("plain text");
        assert!(["active", "inactive", "activating"].contains(&said.trim()), "{said}");
    }
}

mod numa {
    use super::*;

    #[test]
    fn there_are_two_numa_nodes() {
        guest::required();
        assert_eq!(guest::read("/sys/devices/system/node/online"), "0-1");
        assert_eq!(guest::read("/sys/devices/system/node/node1/cpulist"), "2-3");
    }
}
